# What a person may choose with -D. The parts that need software of their own are
# AUTO (built when it is there), ON (an error when it is not) or OFF.

option(XPIPE_BUILD_TESTS "Build the tests" ON)
option(XPIPE_BUILD_BENCHMARKS "Build the benchmarks of bench/" OFF)
option(XPIPE_WARNINGS_AS_ERRORS "Fail on a compiler warning" OFF)

set(XPIPE_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined or thread")

set(default_shared "$ENV{XPIPE_SHARED}")
if(NOT default_shared)
  cmake_path(GET PROJECT_SOURCE_DIR PARENT_PATH default_shared)
  string(APPEND default_shared "/shared")
endif()
set(XPIPE_SHARED_DIR "${default_shared}" CACHE PATH
    "Folder of the real inputs that tests read; a test that lacks them is skipped")
unset(default_shared)

foreach(part TORCH C10D CUDA NCCL)
  set(XPIPE_WITH_${part} "AUTO" CACHE STRING "Build the ${part} part: AUTO, ON or OFF")
  set_property(CACHE XPIPE_WITH_${part} PROPERTY STRINGS AUTO ON OFF)
  if(NOT XPIPE_WITH_${part} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR
            "XPIPE_WITH_${part} is '${XPIPE_WITH_${part}}'; it must be AUTO, ON or OFF")
  endif()
endforeach()

# Sets XPIPE_HAS_<part> from the person's wish and from what was found.
function(xpipe_decide part found missing)
  set(has FALSE)
  if(XPIPE_WITH_${part} STREQUAL "OFF")
    set(reason "switched off")
  elseif(found)
    set(has TRUE)
    set(reason "found")
  elseif(XPIPE_WITH_${part} STREQUAL "ON")
    message(FATAL_ERROR "XPIPE_WITH_${part}=ON, but ${missing}")
  else()
    set(reason "${missing}")
  endif()
  set(XPIPE_HAS_${part} ${has} PARENT_SCOPE)
  set_property(GLOBAL PROPERTY XPIPE_REASON_${part} "${reason}")
endfunction()

function(xpipe_print_summary)
  foreach(part TORCH C10D CUDA NCCL)
    get_property(reason GLOBAL PROPERTY XPIPE_REASON_${part})
    if(XPIPE_HAS_${part})
      message(STATUS "XPipe with ${part}: yes")
    else()
      message(STATUS "XPipe with ${part}: no (${reason})")
    endif()
  endforeach()
endfunction()
