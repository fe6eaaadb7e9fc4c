# xpipe_add_library(<folder>
#                   [HEADERS file...] [INTERNAL_HEADERS file...] [SOURCES file...] [APART file...]
#                   [PUBLIC target...] [PRIVATE target...])
#
# Declares library xpipe_<folder> with its alias xpipe::<folder>. Files are named relative to the
# folder whose CMakeLists.txt calls; PUBLIC is what the headers include, PRIVATE what only the .cpp
# files do. Includes are written from the root of the tree. Headers form a file set, so that target
# all_verify_interface_header_sets compiles each of them alone. Without sources the library is
# headers only.
#
# Where CMAKE_UNITY_BUILD is on, several SOURCES are compiled as one file; APART are those that are
# not, since a name of theirs that is local to the file is another's too.
#
# INTERNAL_HEADERS are the headers that include what is PRIVATE, torch above all: who links the
# library does not see it (torch/include shadows the system's fmt). The folder's own tests do; they
# link xpipe::<folder>_internal instead. Target xpipe_<folder>_headers_alone compiles each of them
# alone, with the precompiled torch/torch.h where the library has it (20 s a header otherwise);
# xpipe_headers_alone is all of these and the file sets.
function(xpipe_add_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;INTERNAL_HEADERS;SOURCES;APART;PUBLIC;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xpipe_add_library(${folder}): what is '${arg_UNPARSED_ARGUMENTS}'?")
  endif()

  set(target xpipe_${folder})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES} ${arg_APART})
    xpipe_compile_apart(${arg_APART})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE xpipe_flags ${arg_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(xpipe::${folder} ALIAS ${target})

  target_link_libraries(${target} ${scope} ${arg_PUBLIC})
  target_include_directories(
    ${target} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                       "$<INSTALL_INTERFACE:${XPIPE_INSTALL_INCLUDE_DIR}>")
  xpipe_add_headers(${target} ${scope} ${arg_HEADERS})
  xpipe_install_library(${folder} ${target})

  if(arg_INTERNAL_HEADERS)
    add_library(${target}_internal INTERFACE)
    add_library(xpipe::${folder}_internal ALIAS ${target}_internal)
    target_link_libraries(${target}_internal INTERFACE ${target} ${arg_PRIVATE})
    xpipe_add_headers(${target}_internal INTERFACE ${arg_INTERNAL_HEADERS})
    set_target_properties(${target}_internal PROPERTIES VERIFY_INTERFACE_HEADER_SETS OFF)
    xpipe_compile_headers_alone(${target} ${arg_INTERNAL_HEADERS})
    xpipe_install_library(${folder}_internal ${target}_internal)
  endif()
endfunction()

# CMake's own verification of header sets leaves precompiled headers out.
function(xpipe_compile_headers_alone target)
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(sources)
  foreach(header IN LISTS ARGN)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers_alone/${header}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${folder}/${header}\"\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  add_library(${target}_headers_alone OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${target}_headers_alone PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${target}_headers_alone PRIVATE xpipe_flags ${target}_internal)
  if(NOT TARGET xpipe_headers_alone)
    add_custom_target(xpipe_headers_alone)
    cmake_language(DEFER DIRECTORY "${PROJECT_SOURCE_DIR}" CALL add_dependencies xpipe_headers_alone
                   all_verify_interface_header_sets)
  endif()
  add_dependencies(xpipe_headers_alone ${target}_headers_alone)
endfunction()

function(xpipe_compile_apart)
  if(NOT ARGN)
    return()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Adds headers to a target as the file set that header verification compiles one by one.
function(xpipe_add_headers target scope)
  if(NOT ARGN)
    return()
  endif()
  target_sources(
    ${target}
    ${scope}
    FILE_SET
    HEADERS
    BASE_DIRS
    "${PROJECT_SOURCE_DIR}"
    FILES
    ${ARGN})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# xpipe_use_torch_header(<target>)
#
# Gives a target that includes torch the precompiled torch/torch.h: the first such target compiles
# it, the others reuse it (20 s a file otherwise).
function(xpipe_use_torch_header target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  # What ccache needs to see a precompiled header's content.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  get_property(owner GLOBAL PROPERTY XPIPE_TORCH_HEADER_OWNER)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE <torch/torch.h>)
    set_property(GLOBAL PROPERTY XPIPE_TORCH_HEADER_OWNER ${target})
  endif()
  if(TARGET ${target}_headers_alone)
    xpipe_use_torch_header(${target}_headers_alone)
  endif()
endfunction()

# xpipe_add_benchmark(<name> [LIBS target...])
#
# Declares bench/<name>.cpp, a Google Benchmark program with its main, as build/bin/bench_<name>;
# ./dev bench <name> runs it.
function(xpipe_add_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
  add_executable(bench_${name} ${name}.cpp)
  target_include_directories(bench_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(bench_${name} PRIVATE xpipe_flags ${arg_LIBS} benchmark::benchmark)
endfunction()
