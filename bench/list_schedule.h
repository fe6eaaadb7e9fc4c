// Two flushing schedules as order lists, for comparisons with published figures: 1F1B (DAPPLE,
// PipeDream-Flush) and ZB-H1 (Zero Bubble, Qi et al., ICLR'24), one mini-batch of M micro-batches.
// On stage s of D, with w = D - 1 - s (methods.md 7.1):
//
//   1F1B    w forwards; then forward, whole backward in turn; the backwards that are left
//   ZB-H1   w forwards; then for i = 0 ... M-1:  F(w+i) if there is one,  I(i),  W(i-s) if i >= s;
//           the W that are left
//
//   ZB-H1, D = 2, M = 3:   0:  F0 F1 I0 W0 F2 I1 W1 I2 W2
//                          1:  F0 I0 F1 I1 W0 F2 I2 W1 W2
#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/compute_plan.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "scheduler/compile.h"
#include "scheduler/stage_graph.h"

namespace xpipe::bench {

enum class ListSchedule : std::uint8_t { OneFOneB, ZbH1 };

inline ir::ComputePlan list_plan(ListSchedule which, std::uint32_t stages, std::uint32_t count) {
  ir::ComputePlan plan{.micro_batches = count, .mini_batches = 1};
  for (std::uint32_t s = 0; s < stages; ++s) {
    const ir::StageId stage{static_cast<std::uint16_t>(s)};
    std::vector<ir::ComputeOp> ops;
    const auto add = [&ops, stage](ir::OpKind kind, std::uint32_t index) {
      ops.push_back({.kind = kind, .stage = stage, .index = index, .weights = {}});
    };
    const std::uint32_t ahead = std::min(stages - 1 - s, count);
    for (std::uint32_t j = 0; j < ahead; ++j) {
      add(ir::OpKind::Forward, j);
    }
    const bool split = which == ListSchedule::ZbH1;
    std::uint32_t weights_done = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (ahead + i < count) {
        add(ir::OpKind::Forward, ahead + i);
      }
      add(split ? ir::OpKind::BackwardInput : ir::OpKind::Backward, i);
      if (split && i >= s) {
        add(ir::OpKind::BackwardWeight, weights_done++);
      }
    }
    for (; split && weights_done < count; ++weights_done) {
      add(ir::OpKind::BackwardWeight, weights_done);
    }
    add(ir::OpKind::Step, 0);
    plan.placement.push_back({ir::DeviceId{static_cast<std::uint16_t>(s)}});
    plan.devices.push_back(std::move(ops));
  }
  return plan;
}

inline ir::Result<ir::Schedule> list_schedule(ListSchedule which,
                                              std::uint32_t stages,
                                              std::uint32_t count) {
  return scheduler::compile_plan(list_plan(which, stages, count), scheduler::chain_of(stages),
                                 which == ListSchedule::ZbH1 ? "zb-h1" : "1f1b", {});
}

}  // namespace xpipe::bench
