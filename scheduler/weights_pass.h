// The weights pass: gives every wanted copy of the weights a slot, and adds the
// tasks that make and free copies. It works stage by stage like a register
// allocator over one device's order:
//
//   wanted                      what the pass does
//   version v = the master's    reads slot 0
//   version v, overwritten      STASH just before the step that overwrites it,
//   while a reader is
//                               left; RELEASE after the last one       (copy on
//                               write)
//   predicted copy              PREDICT just before its first reader; the slot
//   is free after the
//                               last one
//
// A replicated stage has slots on each of its devices, found by the order of each; its number of
// slots is the largest of them. Where a plan says so (OpKind::Predict), a copy is made before its
// first reader on a device.
//
// So a stage never holds more copies than are still to be read: D - k for
// PipeDream's stage k, at most three weight storages for XPipe.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::scheduler {

struct ComputeLanes {
  std::vector<std::vector<ir::Task>> devices;  ///< compute tasks by DeviceId, in order; lanes unset
  std::vector<std::uint16_t> slots;            ///< storages by StageId, master included
};

/// Errors: Illegal, for every op that wants weights that cannot be had.
[[nodiscard]] ir::Result<ComputeLanes> assign_weights(const ir::ComputePlan& plan);

}  // namespace xpipe::scheduler
