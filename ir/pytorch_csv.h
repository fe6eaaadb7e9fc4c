// Writes a schedule as a PyTorch pipelining CSV, compute actions only: one row a device, whole
// backwards as B, split ones as I and W. The file keeps the order and loses the rest: durations,
// weight versions, predictions, steps, placement beyond row = rank.
#pragma once

#include <string>

#include "ir/schedule.h"

namespace xpipe::ir {

/// Rows end with LF; no blanks: the order says when a rank waits.
[[nodiscard]] std::string schedule_to_pytorch_csv(const Schedule& schedule);

/// Whether the CSV alone would mislead: some pass of a mini-batch i reads other weights than
/// version i, so that a reader who takes the order for a synchronous schedule trains something
/// else.
[[nodiscard]] bool csv_loses_meaning(const Schedule& schedule);

}  // namespace xpipe::ir
