// The text form of tasks and schedules: a superset of PyTorch's pipelining tokens that parses back.
//
//   1F5[s1:v2+1]        forward of micro-batch 5 on stage 1, from slot 1: version 2, one step ahead
//   1B5[s0:v3]  1I5[..] 1W5[..]  1RECOMPUTE5[..]       distance 0 is not written
//   1PREDICT_F2[s0:v2>s1+1]  1PREDICT_B2[...]          into slot 1, for mini-batch 2
//   1STEP2[v2]          from version 2 to 3            1STASH2[s0:v2>s3]   1RELEASE2[s3]
//   1SEND_F0  1RECV_F0  1SEND_B0  1RECV_B0  1ALLREDUCE2
//     peers: a forward goes to the next stage, a backward to the previous one; any other peer is
//     written, and so are bytes where known: 1SEND_F0[>3]  1RECV_F0[<0:4096B]  1SEND_F0[4096B]
//
// A `.tasks` file holds a header, one lane a line, and the edges between lanes:
//
//   # xpipe.schedule 1
//   policy gpipe
//   option predict=both
//   micro-batches 4
//   mini-batches 2
//   devices 2
//   stage 0 device 0 slots 1
//   compute 0: 0F0[s0:v0] 0F1[s0:v0] ...
//   send 0>1: 0SEND_F0 ...
//   receive 0>1: 1RECV_F0 ...
//   edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 ...
//
// In edges a task is named by its text up to the bracket, plus the peer where that is needed to
// tell two sends apart.
#pragma once

#include <string>
#include <string_view>

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::ir {

[[nodiscard]] std::string to_text(const Task& task);

/// The inverse of to_text; strict: the whole token, decimal digits, nothing else. The lane of the
/// result is LaneId{0}; lanes are a schedule's business.
[[nodiscard]] Result<Task> task_from_text(std::string_view token);

[[nodiscard]] std::string schedule_to_text(const Schedule& schedule);

/// Errors: BadInput, every fault with "line L, column C". `file` names the source in messages.
[[nodiscard]] Result<Schedule> schedule_from_text(std::string_view text, std::string_view file);

}  // namespace xpipe::ir
