// The text form of tasks and schedules: a superset of PyTorch's pipelining tokens that parses back.
//
//   1F5[s1:v2+1]        forward of micro-batch 5 on stage 1, from slot 1: version 2, one step ahead
//   1B5[s0:v3]  1I5[..] 1W5[..]  1RECOMPUTE5[..]       distance 0 is not written
//   1PREDICT_F2[s0:v2>s1+1]  1PREDICT_B2[...]          into slot 1, for mini-batch 2
//   1STEP2[v2]          from version 2 to 3            1STASH2[s0:v2>s3]   1RELEASE2[s3]
//   1SUMTIED2[3]        the gradients of the weights that stages 1 and 3 share, added up
//   1SEND_F0  1RECV_F0  1SEND_B0  1RECV_B0  1ALLREDUCE2  1CLIP2
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
//   stage 0 device 0 slots 1       (a replicated stage: stage 0 devices 0,1 slots 1)
//   compute 0: 0F0[s0:v0] 0F1[s0:v0] ...
//   send 0>1: 0SEND_F0 ...
//   receive 0>1: 1RECV_F0 ...
//   edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 ...
//
// In edges a task is named by its text up to the bracket, plus the peer where it is not the usual
// one. A name that two tasks share is written in full (1RELEASE2[s3]), and twins are counted
// (1RELEASE2[s3]#1 is the second in the order of ids).
// Tasks get their ids in the order of the file. A schedule whose ids are in another order has a
// line `ids: 0-3 7 9-11` after each lane with tasks, which gives the ids of that lane's tasks.
// Lines that start with # and empty lines are skipped, CR LF is read as LF, a byte order mark is
// refused. In policy and options, backslash escapes stand for what a line cannot hold: \xHH.
#pragma once

#include <string>
#include <string_view>

#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::ir {

[[nodiscard]] std::string to_text(const Task& task);

/// The inverse of to_text; strict: the whole token, decimal digits without leading zeros, nothing
/// else. A compute task must say which weights it reads: PyTorch's bare `1F0` is refused, as
/// guessing slot and version would be wrong in silence. The lane of the result is LaneId{0}; lanes
/// are a schedule's business. Errors: BadInput, code "token", with the character of the token.
[[nodiscard]] Result<Task> task_from_text(std::string_view token);

/// Requires: every task in exactly one lane and all ids in range (validate()'s shape level).
/// from_text(to_text(s)) == s.
[[nodiscard]] std::string schedule_to_text(const Schedule& schedule);

/// Errors: BadInput, every fault with "line L, column C" (in bytes, from 1). `file` names the
/// source in messages. Edges are sorted; otherwise the result is as written: run validate() on it.
[[nodiscard]] Result<Schedule> schedule_from_text(std::string_view text, std::string_view file);

}  // namespace xpipe::ir
