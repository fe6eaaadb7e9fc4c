// Faults for the tests of failures: the environment variable XPIPE_TEST_FAULT makes a task of a
// real run fail in a real way. Nothing else reads it; without it this does nothing.
//
//   XPIPE_TEST_FAULT="RANK TASK ACTION[;...]"     "1 1F3 kill": rank 1, the first task whose text
//                                                 begins with 1F3
//   throw      the handler throws            exit=N    the process exits with N, without a word
//   memory     no more memory may be had     kill      SIGKILL to itself
//   hang       the handler does not return   stop      SIGSTOP to itself
//   slow=MS    sleeps first, each time       int, term SIGINT, SIGTERM to itself
#pragma once

#include <cstdint>
#include <string>

#include "executor/handlers.h"
#include "ir/status.h"

namespace xpipe::app {

/// Wraps the handlers of the tasks that `text` (the variable's value) names for `rank`.
/// Errors: Usage, when it cannot be read.
[[nodiscard]] ir::Status inject_faults(const std::string& text,
                                       std::uint32_t rank,
                                       executor::HandlerTable& handlers);

}  // namespace xpipe::app
