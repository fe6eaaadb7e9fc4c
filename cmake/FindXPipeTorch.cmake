# LibTorch as ./dev setup unpacks it from the PyPI wheel (scripts/libtorch-requirements.txt).
#
#   XPIPE_TORCH_ROOT    folder that holds torch/ and nvidia/; by default the newest one in the cache
#                       of ./dev setup, $XPIPE_CACHE or $XDG_CACHE_HOME/xpipe or ~/.cache/xpipe
#   XPipeTorch_ROOT_DIR the folder that was taken
#   XPipeTorch::cpu     imported target: headers (SYSTEM), libtorch_cpu, libc10, run path
#
# The wheel is the CUDA build and its own TorchConfig.cmake wants the CUDA toolkit; a CPU program
# needs these two libraries and, at run time, libcudart and libcupti beside them: no driver, no GPU.

set(XPIPE_TORCH_ROOT "$ENV{XPIPE_TORCH_ROOT}" CACHE PATH "Folder that holds torch/ and nvidia/")

set(root "${XPIPE_TORCH_ROOT}")
if(NOT root)
  set(cache "$ENV{XPIPE_CACHE}")
  if(NOT cache AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache "$ENV{XDG_CACHE_HOME}/xpipe")
  elseif(NOT cache)
    set(cache "$ENV{HOME}/.cache/xpipe")
  endif()
  file(GLOB candidates LIST_DIRECTORIES true "${cache}/libtorch-*")
  list(FILTER candidates EXCLUDE REGEX "\\.partial$")
  list(SORT candidates COMPARE NATURAL ORDER DESCENDING)
  if(candidates)
    list(GET candidates 0 root)
  endif()
endif()

set(XPipeTorch_ROOT_DIR "${root}")
set(XPipeTorch_LIB_DIR "${root}/torch/lib")
set(XPipeTorch_CUDA_LIB_DIR "${root}/nvidia/cu13/lib")
set(XPipeTorch_INCLUDE_DIRS "${root}/torch/include" "${root}/torch/include/torch/csrc/api/include")
set(found_library "")
if(EXISTS "${XPipeTorch_LIB_DIR}/libtorch_cpu.so" AND EXISTS "${XPipeTorch_CUDA_LIB_DIR}")
  set(found_library "${XPipeTorch_LIB_DIR}/libtorch_cpu.so")
  if(EXISTS "${root}/torch/version.py")
    file(STRINGS "${root}/torch/version.py" version_line REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" XPipeTorch_VERSION "${version_line}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  XPipeTorch
  REQUIRED_VARS found_library
  VERSION_VAR XPipeTorch_VERSION)

if(XPipeTorch_FOUND AND NOT TARGET XPipeTorch::cpu)
  add_library(XPipeTorch::cpu INTERFACE IMPORTED)
  target_include_directories(XPipeTorch::cpu INTERFACE ${XPipeTorch_INCLUDE_DIRS})
  # c10's headers warn about the cache line size, which is theirs to choose.
  target_compile_options(XPipeTorch::cpu INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-interference-size>)
  target_link_options(XPipeTorch::cpu INTERFACE "LINKER:-rpath,${XPipeTorch_LIB_DIR}"
                      "LINKER:-rpath,${XPipeTorch_CUDA_LIB_DIR}")
  # Kernels register themselves at load: the linker must not drop a library nobody names.
  target_link_libraries(
    XPipeTorch::cpu
    INTERFACE "-Wl,--push-state,--no-as-needed" "${XPipeTorch_LIB_DIR}/libtorch_cpu.so"
              "${XPipeTorch_LIB_DIR}/libc10.so" "-Wl,--pop-state" Threads::Threads)
endif()
