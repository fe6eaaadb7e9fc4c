# xpipe_add_test(<folder> LABEL fast|slow
#                [SOURCES file...] [APART file...] [LIBS target...] [TIMEOUT seconds])
#
# Declares executable xpipe_<folder>_tests and registers each of its doctest cases with ctest as
# "<folder>: <case>". A case in TEST_SUITE("slow"), TEST_SUITE("gpu") or TEST_SUITE("nccl") is labelled so
# whatever LABEL says. A case that prints "[SKIPPED] why" counts as skipped. doctest's own timeout only marks a case that has already
# returned, so a hang is ended by ctest's TIMEOUT. No sources, no executable.
#
# APART is as for xpipe_add_library(). A test finds the tree in the macro XPIPE_SOURCE_DIR and the real inputs in the environment
# variable XPIPE_SHARED.
function(xpipe_add_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "SOURCES;APART;LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_LABEL MATCHES "^(fast|slow)$")
    message(FATAL_ERROR "xpipe_add_test(${folder}): want LABEL fast or slow, got '${ARGN}'")
  endif()
  if(NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(XPIPE_SANITIZE)
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
  endif()

  set(target xpipe_${folder}_tests)
  add_executable(${target} ${arg_SOURCES} ${arg_APART})
  xpipe_compile_apart(${arg_APART})
  # Three quarters of the compile time of -O2, and as fast to run. Not with torch: a precompiled header
  # is only good for the flags it was compiled with.
  if(NOT xpipe::executor_torch_internal IN_LIST arg_LIBS)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  target_link_libraries(${target} PRIVATE xpipe_flags xpipe_doctest_main ${arg_LIBS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${target} PRIVATE XPIPE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

  set(listing "${CMAKE_CURRENT_BINARY_DIR}/${target}_cases.cmake")
  add_custom_command(
    TARGET ${target}
    POST_BUILD
    COMMAND
      "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/list_doctest_cases.py" --executable
      "$<TARGET_FILE:${target}>" --prefix "${folder}" --label "${arg_LABEL}" --timeout
      "${arg_TIMEOUT}" --environment "XPIPE_SHARED=${XPIPE_SHARED_DIR}" --output "${listing}"
    BYPRODUCTS "${listing}"
    VERBATIM)
  # ctest reads the listing when it runs; a test program that was never built is a failing test.
  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(
    WRITE "${include_file}"
    "if(EXISTS \"${listing}\")\n"
    "  include(\"${listing}\")\n"
    "else()\n"
    "  add_test(\"${folder}: not built\" \"${target}-not-built\")\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
