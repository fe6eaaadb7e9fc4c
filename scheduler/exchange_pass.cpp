#include "scheduler/exchange_pass.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/task.h"

namespace xpipe::scheduler {

namespace {

using ir::ComputeOp;
using ir::index_of;
using ir::OpKind;
using ir::StageId;
using ir::TaskId;

/// Kind, stages (one, the two that are tied, or none: all) and mini-batch.
using ExchangeName = std::tuple<ir::TaskKind, std::uint32_t, std::uint32_t, std::uint32_t>;

constexpr std::uint32_t kAllStages = 0xffffffffU;

std::optional<ExchangeName> name_of(const ir::Task& task) {
  const std::uint32_t stage = index_of(task.stage);
  if (const auto* reduce = std::get_if<ir::AllReduce>(&task.payload)) {
    return ExchangeName{task.kind(), stage, stage, index_of(reduce->mini_batch)};
  }
  if (const auto* tied = std::get_if<ir::SumTied>(&task.payload)) {
    const std::uint32_t peer = index_of(tied->peer);
    return ExchangeName{task.kind(), std::min(stage, peer), std::max(stage, peer),
                        index_of(tied->mini_batch)};
  }
  if (const auto* clip = std::get_if<ir::ClipNorm>(&task.payload)) {
    return ExchangeName{task.kind(), kAllStages, kAllStages, index_of(clip->mini_batch)};
  }
  return std::nullopt;
}

}  // namespace

void add_exchanges(const StageGraph& graph, bool clips, ir::ComputePlan& plan) {
  if (graph.ties.empty() && !clips) {
    return;
  }
  for (std::vector<ComputeOp>& order : plan.devices) {
    std::vector<ComputeOp> longer;
    longer.reserve(order.size() + order.size() / 2);
    for (const ComputeOp& op : order) {
      if (op.kind == OpKind::Step) {
        for (const StageTie& tie : graph.ties) {
          if (tie.first == op.stage || tie.second == op.stage) {
            longer.push_back({.kind = OpKind::SumTied,
                              .stage = op.stage,
                              .index = op.index,
                              .weights = {},
                              .peer = tie.first == op.stage ? tie.second : tie.first});
          }
        }
        if (clips) {
          longer.push_back(
              {.kind = OpKind::ClipNorm, .stage = op.stage, .index = op.index, .weights = {}});
        }
      }
      longer.push_back(op);
    }
    order = std::move(longer);
  }
}

bool is_exchange(OpKind kind) {
  return kind == OpKind::AllReduce || kind == OpKind::SumTied || kind == OpKind::ClipNorm;
}

bool takes_part(const ComputeOp& op, StageId stage) {
  return stage == op.stage || op.kind == OpKind::ClipNorm ||
         (op.kind == OpKind::SumTied && stage == op.peer);
}

bool is_same_exchange(const ComputeOp& a, const ComputeOp& b) {
  if (a.kind != b.kind || a.index != b.index) {
    return false;
  }
  const bool same = a.stage == b.stage && a.peer == b.peer;
  return a.kind == OpKind::ClipNorm || same ||
         (a.kind == OpKind::SumTied && a.stage == b.peer && a.peer == b.stage);
}

std::vector<std::vector<ExchangePart>> exchange_parts(const ir::Schedule& schedule) {
  std::map<ExchangeName, std::vector<ExchangePart>> exchanges;
  for (const ir::Lane& lane : schedule.lanes) {
    for (std::size_t i = 0; lane.kind == ir::LaneKind::Compute && i < lane.order.size(); ++i) {
      const std::optional<ExchangeName> name = name_of(schedule.task(lane.order[i]));
      if (!name) {
        continue;
      }
      std::size_t before = i;
      while (before > 0 && name_of(schedule.task(lane.order[before - 1])) == name) {
        --before;
      }
      exchanges[*name].push_back(
          {lane.order[i], before > 0 ? std::optional(lane.order[before - 1]) : std::nullopt});
    }
  }
  std::vector<std::vector<ExchangePart>> all;
  all.reserve(exchanges.size());
  for (auto& [name, parts] : exchanges) {
    all.push_back(std::move(parts));
  }
  return all;
}

bool join_exchanges(ir::Schedule& schedule) {
  const std::vector<std::vector<ExchangePart>> exchanges = exchange_parts(schedule);
  for (const std::vector<ExchangePart>& parts : exchanges) {
    for (const ExchangePart& from : parts) {
      for (const ExchangePart& to : parts) {
        const bool other_lane = schedule.task(from.task).lane != schedule.task(to.task).lane;
        if (from.behind && other_lane) {
          schedule.edges.push_back({*from.behind, to.task});
        }
      }
    }
  }
  return !exchanges.empty();
}

}  // namespace xpipe::scheduler
