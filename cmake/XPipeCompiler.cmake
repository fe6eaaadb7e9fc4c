# Language, warnings, sanitizers and ccache: the same for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(XPIPE_CCACHE ccache)
mark_as_advanced(XPIPE_CCACHE)
if(XPIPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the clone, so that a second clone hits; the sloppiness that ccache's manual
  # asks for with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "${XPIPE_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# Flags that every target of ours gets; third-party headers are SYSTEM and stay quiet.
add_library(xpipe_flags INTERFACE)
target_compile_features(xpipe_flags INTERFACE cxx_std_20)
set(warnings
    -Wall -Wextra -Wnon-virtual-dtor
    # Where several sources are compiled as one, what is local to a file looks global to the next.
    $<IF:$<BOOL:${CMAKE_UNITY_BUILD}>,-Wshadow=local;-Wno-subobject-linkage,-Wshadow>
    # Naming some members and leaving the rest to their defaults is how we fill plain structs.
    -Wno-missing-field-initializers
    # A new kind must be handled wherever kinds are switched over: never a mere warning.
    -Werror=switch -Werror=return-type
    # g++ 12 warns of overlapping copies inside std::string's own operator+ (GCC bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<BOOL:${XPIPE_WARNINGS_AS_ERRORS}>:-Werror>)
target_compile_options(
  xpipe_flags
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
    # Of the host's half of a file.
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Werror=switch,-Werror=return-type>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${XPIPE_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>)
unset(warnings)

if(XPIPE_SANITIZE)
  add_compile_options(-fsanitize=${XPIPE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${XPIPE_SANITIZE})
endif()
