// The arrows of a trace: which task's result another one was waiting for. Derived from the schedule
// alone, so that plan and run carry the same arrows.
//
//   transfer   0F0 --0SEND_F0 ~~ 1RECV_F0--> 1F0      from the send to the compute task
//   weights    0STEP1 --> 0PREDICT_F2 --> 0F4, 0F5    each pass, prediction and stash has one arrow
//              0STEP1 --> 0STASH2 --> 0B4             from the task that wrote what it reads
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/timeline.h"

namespace xpipe::traces {

enum class ArrowKind : std::uint8_t { Transfer, Weights };

struct Arrow {
  ArrowKind kind = ArrowKind::Transfer;
  ir::TaskId from{};
  ir::TaskId to{};

  bool operator==(const Arrow&) const = default;
};

/// Transfers first, in the order of edges, then weights, in the order of lanes. Weights that no
/// task of the segment wrote (version 0) have no arrow. Requires: ids in range.
[[nodiscard]] std::vector<Arrow> arrows_of(const ir::Schedule& schedule);

/// The arrows as they can be drawn: a viewer ties both ends to slices that take time. An arrow from
/// a task of no time leaves from the last slice before it (a send: from the task whose result it
/// sends; others: on its lane); one without such a slice, or to a task of no time, is left out, and
/// so is one that would point backwards (clocks of a measured run may differ by that little).
/// Requires: `timeline` fits `schedule`.
[[nodiscard]] std::vector<Arrow> visible_arrows(const ir::Schedule& schedule,
                                                const ir::Timeline& timeline);

}  // namespace xpipe::traces
