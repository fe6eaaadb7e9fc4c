# Everything XPipe takes from elsewhere; ./dev setup installs it. Folders link what they use.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
if(XPIPE_BUILD_TESTS)
  find_package(doctest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

if(NOT XPIPE_WITH_TORCH STREQUAL "OFF")
  find_package(XPipeTorch)
endif()
xpipe_decide(TORCH "${XPipeTorch_FOUND}"
             "LibTorch was not found: run ./dev setup, or set XPIPE_TORCH_ROOT")

# CUDA and NCCL are looked for only where there is something to build with them.
set(cuda_missing "this tree has no executor/cuda")
set(nccl_missing "this tree has no executor/nccl")
if(EXISTS "${PROJECT_SOURCE_DIR}/executor/cuda/CMakeLists.txt" AND NOT XPIPE_WITH_CUDA STREQUAL
                                                                   "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  set(cuda_missing "nvcc was not found")
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit)
  endif()
endif()
xpipe_decide(CUDA "${CUDAToolkit_FOUND}" "${cuda_missing}")
if(XPIPE_HAS_CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
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
