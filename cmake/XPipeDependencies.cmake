# Everything XPipe takes from elsewhere; ./dev setup installs it. Folders link what they use.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(TBB 2021 REQUIRED)
find_package(ZLIB REQUIRED)
if(XPIPE_BUILD_TESTS)
  find_package(doctest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
if(XPIPE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

if(NOT XPIPE_WITH_TORCH STREQUAL "OFF")
  find_package(XPipeTorch)
endif()
if(XPipeTorch_FOUND)
  # What its data readers decode images with.
  find_package(JPEG REQUIRED)
  find_package(PNG REQUIRED)
endif()
xpipe_decide(TORCH "${XPipeTorch_FOUND}"
             "LibTorch was not found: run ./dev setup, or set XPIPE_TORCH_ROOT")

# CUDA and NCCL are looked for only where there is something to build with them.
set(cuda_missing "this tree has no executor/cuda")
set(nccl_missing "this tree has no executor/nccl")
if(EXISTS "${PROJECT_SOURCE_DIR}/executor/cuda/CMakeLists.txt" AND NOT XPIPE_WITH_CUDA STREQUAL
                                                                   "OFF")
  # Not every installation puts nvcc on the path.
  find_program(XPIPE_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  mark_as_advanced(XPIPE_NVCC)
  if(XPIPE_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${XPIPE_NVCC}")
  endif()
  set(cuda_missing "nvcc was not found")
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit)
  endif()
endif()
xpipe_decide(CUDA "${CUDAToolkit_FOUND}" "${cuda_missing}")
if(XPIPE_HAS_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Code for A100 and H100; what is older (from Turing) or newer compiles it at its first start.
    set(CMAKE_CUDA_ARCHITECTURES 75-virtual 80-real 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc has C++20; the language follows CMAKE_CXX_STANDARD.
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
endif()

if(EXISTS "${PROJECT_SOURCE_DIR}/executor/nccl/CMakeLists.txt" AND NOT XPIPE_WITH_NCCL STREQUAL
                                                                   "OFF")
  find_path(XPIPE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(XPIPE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  set(nccl_missing "nccl.h or libnccl was not found")
endif()
if(XPIPE_NCCL_INCLUDE_DIR AND XPIPE_NCCL_LIBRARY)
  set(nccl_found TRUE)
endif()
xpipe_decide(NCCL "${nccl_found}" "${nccl_missing}")
