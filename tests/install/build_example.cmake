# cmake -DBUILD= -DSOURCE= -DSCRATCH= -DGENERATOR= -DCOMPILER= -P build_example.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output COMMAND_ECHO STDOUT)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "status ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/installed")
# From a copy outside of the tree: nothing but the installed XPipe is in reach.
file(COPY "${SOURCE}/examples/own_model" DESTINATION "${SCRATCH}")
run("${CMAKE_COMMAND}" -S "${SCRATCH}/own_model" -B "${SCRATCH}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug
    "-DCMAKE_PREFIX_PATH=${SCRATCH}/installed")
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${CMAKE_COMMAND}" -E chdir "${SCRATCH}" "${SCRATCH}/build/own_model"
    "${SOURCE}/examples/data/digits")
message(STATUS "${output}")
if(NOT output MATCHES "test accuracy 0\\.[89]")
  message(FATAL_ERROR "the example did not learn:\n${output}")
endif()
if(NOT EXISTS "${SCRATCH}/own_model.pt")
  message(FATAL_ERROR "the example saved no weights")
endif()
run("${SCRATCH}/installed/bin/xpipe" --version)
