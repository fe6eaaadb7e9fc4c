#include "scheduler/placement_pass.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/exchange_pass.h"

namespace xpipe::scheduler {

namespace {

using ir::ComputeOp;
using ir::DeviceId;
using ir::index_of;
using ir::OpKind;
using ir::Pass;

using Orders = std::vector<std::vector<ComputeOp>>;

/// The pass that an op runs; nothing for those that take no time.
std::optional<Pass> pass_of(OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
      return Pass::Forward;
    case OpKind::Backward:
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
    case OpKind::Recompute:
      return Pass::Backward;
    case OpKind::Step:
    case OpKind::AllReduce:
    case OpKind::Predict:
    case OpKind::SumTied:
    case OpKind::ClipNorm:
      return std::nullopt;
  }
  return std::nullopt;
}

/// One stage on one device.
struct Place {
  std::size_t stage = 0;
  std::size_t device = 0;
  const std::vector<ComputeOp>* order = nullptr;
  std::size_t next = 0;  ///< in its order

  [[nodiscard]] bool done() const { return next == order->size(); }

  [[nodiscard]] const ComputeOp& op() const { return (*order)[next]; }
};

/// Merges the orders of the places on each device.
class Merge {
 public:
  Merge(const ir::ComputePlan& plan, const Layout& layout, const StageGraph& graph)
      : micro_batches_(std::size_t{plan.micro_batches} * plan.mini_batches),
        by_device_(layout.devices),
        merged_(layout.devices) {
    std::size_t next = 0;
    std::vector<std::size_t> ops(layout.devices, 0);
    for (std::size_t k = 0; k < plan.placement.size(); ++k) {
      for (const DeviceId own : plan.placement[k]) {
        const std::size_t device = index_of(layout.placement[next]);
        by_device_[device].push_back(next);
        ++next;
        places_.push_back({k, device, &plan.devices[index_of(own)], 0});
        ops[device] += places_.back().order->size();
      }
    }
    for (std::size_t d = 0; d < ops.size(); ++d) {
      merged_[d].reserve(ops[d]);
    }
    for (int pass = 0; pass < 2; ++pass) {
      waits_for_[pass].resize(graph.stages);
      is_done_[pass].assign(graph.stages * micro_batches_, false);
    }
    for (const StageLink& link : graph.links) {
      waits_for_[0][index_of(link.to)].push_back(index_of(link.from));
      waits_for_[1][index_of(link.from)].push_back(index_of(link.to));
    }
  }

  /// Nothing when the orders wait for each other.
  std::optional<Orders> run() {
    run_timeless();
    std::vector<std::size_t> running;
    while (!all_done()) {
      running.clear();
      for (const std::vector<std::size_t>& places : by_device_) {
        if (const auto place = best(places)) {
          running.push_back(*place);
        }
      }
      if (running.empty()) {
        return std::nullopt;
      }
      for (const std::size_t p : running) {
        const ComputeOp& op = places_[p].op();
        if (op.kind != OpKind::BackwardWeight && op.kind != OpKind::Recompute) {
          is_done_[static_cast<int>(*pass_of(op.kind))]
                  [places_[p].stage * micro_batches_ + op.index] = true;
        }
        append(places_[p]);
      }
      run_timeless();
    }
    return std::move(merged_);
  }

  /// The ops that come next, of all places that are not through.
  [[nodiscard]] std::string waiting() const {
    std::string text;
    for (const Place& place : places_) {
      if (!place.done()) {
        text += (text.empty() ? "stage " : ", stage ") + std::to_string(place.stage) +
                (pass_of(place.op().kind) == Pass::Forward ? " at forward " : " at backward ") +
                std::to_string(place.op().index);
      }
    }
    return text;
  }

 private:
  [[nodiscard]] bool all_done() const {
    for (const Place& place : places_) {
      if (!place.done()) {
        return false;
      }
    }
    return true;
  }

  void append(Place& place) {
    merged_[place.device].push_back(place.op());
    ++place.next;
  }

  /// Steps and predictions, and exchanges once all that take part have come to them.
  void run_timeless() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Place& place : places_) {
        run_alone(place);
      }
      for (Place& place : places_) {
        moved |= !place.done() && is_exchange(place.op().kind) && run_together(place.op());
      }
    }
  }

  void run_alone(Place& place) {
    while (!place.done() && !pass_of(place.op().kind) && !is_exchange(place.op().kind)) {
      append(place);
    }
  }

  /// All places that take part in `op`, once it is next for each. By value: it is appended.
  bool run_together(const ComputeOp op) {
    std::vector<Place*> members;
    for (Place& place : places_) {
      if (takes_part(op, ir::StageId{static_cast<std::uint16_t>(place.stage)})) {
        members.push_back(&place);
      }
    }
    const bool all = std::all_of(members.begin(), members.end(), [&op](const Place* place) {
      return !place->done() && is_same_exchange(op, place->op());
    });
    for (Place* place : members) {
      if (all) {
        append(*place);
      }
    }
    return all;
  }

  [[nodiscard]] bool is_ready(const Place& place) const {
    if (place.done() || !pass_of(place.op().kind)) {
      return false;
    }
    const ComputeOp& op = place.op();
    if (op.kind == OpKind::BackwardWeight || op.kind == OpKind::Recompute) {
      return true;
    }
    const int pass = static_cast<int>(*pass_of(op.kind));
    for (const std::size_t stage : waits_for_[pass][place.stage]) {
      if (!is_done_[pass][stage * micro_batches_ + op.index]) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] std::optional<std::size_t> best(const std::vector<std::size_t>& places) const {
    std::optional<std::size_t> best;
    for (const std::size_t p : places) {
      if (is_ready(places_[p]) && (!best || comes_first(places_[p], places_[*best]))) {
        best = p;
      }
    }
    return best;
  }

  static bool comes_first(const Place& a, const Place& b) {
    const bool a_back = pass_of(a.op().kind) == Pass::Backward;
    const bool b_back = pass_of(b.op().kind) == Pass::Backward;
    if (a_back != b_back) {
      return a_back;
    }
    if (a.op().index != b.op().index) {
      return a.op().index < b.op().index;
    }
    return a.stage > b.stage;
  }

  std::size_t micro_batches_;
  std::vector<Place> places_;                           ///< by stage, then replica
  std::vector<std::vector<std::size_t>> by_device_;     ///< places
  std::vector<std::vector<std::size_t>> waits_for_[2];  ///< stages by Pass, then stage
  std::vector<bool> is_done_[2];                        ///< by Pass, then stage and micro-batch
  Orders merged_;
};

bool shares_devices(const Layout& layout) {
  return layout.devices != layout.placement.size();
}

}  // namespace

ir::Result<ir::ComputePlan> place(ir::ComputePlan plan,
                                  const Layout& layout,
                                  const StageGraph& graph) {
  if (shares_devices(layout)) {
    Merge merge(plan, layout, graph);
    std::optional<Orders> orders = merge.run();
    if (!orders) {
      return ir::make_error(ir::ErrorKind::Internal, "placement", "--placement",
                            "the stages' orders wait for each other: " + merge.waiting());
    }
    plan.devices = *std::move(orders);
  } else {
    Orders orders(layout.devices);
    std::size_t next = 0;
    for (const std::vector<DeviceId>& replicas : plan.placement) {
      for (const DeviceId own : replicas) {
        orders[index_of(layout.placement[next++])] = std::move(plan.devices[index_of(own)]);
      }
    }
    plan.devices = std::move(orders);
  }
  plan.placement = layout.by_stage();
  return plan;
}

}  // namespace xpipe::scheduler
