// The first failure of a run, wherever it happened, in the form in which it travels and is shown:
// every rank reports the same cause, with the rank that it came from in front.
#pragma once

#include <cstdint>
#include <string>

#include "ir/status.h"

namespace xpipe::executor {

struct Failure {
  std::uint32_t rank = 0;  ///< where it happened, or who noticed
  int signal = 0;          ///< Interrupted: which signal
  ir::Error error;         ///< as that rank had it
};

/// Plain bytes that failure_from() reads. Texts too long for a message are cut.
[[nodiscard]] std::string to_bytes(const Failure& failure);

/// Errors: Runtime "bad-frame".
[[nodiscard]] ir::Result<Failure> failure_from(const std::string& bytes);

/// With "rank 2, stage 2, task 2F3[s0:v0]" for a place "2F3[s0:v0]", and "rank 2" for none.
[[nodiscard]] ir::Error shown(const Failure& failure);

}  // namespace xpipe::executor
