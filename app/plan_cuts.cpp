#include "app/plan_cuts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "scheduler/stage_terms.h"

namespace xpipe::app {

namespace {

using scheduler::Compression;

/// The same network with its layers sorted by `stage_of`, else as they stood.
ir::Profile reordered(const ir::Profile& profile, const std::vector<std::uint32_t>& stage_of) {
  std::vector<std::uint32_t> order(profile.layers.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&stage_of](std::uint32_t l) { return stage_of[l]; });
  std::vector<std::uint32_t> place(order.size());
  ir::Profile result = profile;
  for (std::uint32_t p = 0; p < order.size(); ++p) {
    place[order[p]] = p;
    result.layers[p] = profile.layers[order[p]];
  }
  for (ir::LayerEdge& edge : result.edges) {
    edge = {place[edge.from], place[edge.to]};
  }
  std::ranges::sort(result.edges);
  return result;
}

ir::Result<scheduler::Promises> promises_of(const RunRequest& run, std::uint32_t stages) {
  const auto options = scheduler::resolve_options(*run.policy, run.options);
  if (!options.ok()) {
    return options.error();
  }
  return run.policy->promises(
      {.stages = stages,
       .micro_batches = run.policy->whole_mini_batch ? 1 : run.micro_batches,
       .mini_batches = run.mini_batches,
       .options = options.value()});
}

std::string compression_reason(const scheduler::Cuts& found) {
  switch (found.compression) {
    case Compression::None:
      return "";
    case Compression::Branches:
      return fmt::format(
          "branches have too many cuts: layers within a branch stay together up to "
          "{:.3f} ms",
          static_cast<double>(found.longest) / 1e6);
    case Compression::Regions:
      return "branches have too many cuts: all that lies between two layers of the trunk stays "
             "together";
  }
  return "";
}

/// Stages that end at these antichains, each within the next. Inputs are in stage 0.
StageCut stages_of_parts(const ir::Profile& profile,
                         const scheduler::Cuts& found,
                         const std::vector<std::uint32_t>& states) {
  std::vector<std::uint32_t> stage_of(profile.layers.size(), 0);
  for (std::uint32_t n = 0; n < found.graph.nodes.size(); ++n) {
    const auto stage = std::ranges::find_if(
        states, [&](std::uint32_t state) { return found.antichains[state].part.test(n); });
    for (const std::uint32_t l : found.graph.nodes[n].layers) {
      stage_of[l] = static_cast<std::uint32_t>(stage - states.begin());
    }
  }
  StageCut cut;
  cut.profile = reordered(profile, stage_of);
  cut.partition.assign(states.size(), 0);
  for (const std::uint32_t stage : stage_of) {
    ++cut.partition[stage];
  }
  cut.replicas.assign(states.size(), 1);
  return cut;
}

}  // namespace

PlanCutter::PlanCutter(const Workload& workload, Search search)
    : workload_(workload), search_(search) {
  if (search == Search::Order) {
    cuts_ = scheduler::cuts_of_order(workload.profile);
    return;
  }
  found_ = scheduler::bounded_antichains(scheduler::layer_graph(workload.profile), kMostAntichains);
  if (search == Search::Antichains) {
    scheduler::AntichainCuts cuts = scheduler::cuts_of_antichains(found_, workload.profile);
    cuts_ = std::move(cuts.cuts);
    after_ = std::move(cuts.after);
  }
}

StageCut PlanCutter::stages_at(const scheduler::ChainPlan& plan) const {
  if (search_ == Search::Antichains) {
    std::vector<std::uint32_t> states;
    states.reserve(plan.ends.size());
    for (const std::uint32_t end : plan.ends) {
      states.push_back(end - 1);  // the first cut is before all antichains
    }
    return stages_of_parts(workload_.profile, found_, states);
  }
  StageCut cut;
  cut.profile = workload_.profile;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : plan.ends) {
    cut.partition.push_back(cuts_[end].layers - begin);
    begin = cuts_[end].layers;
  }
  cut.replicas.assign(plan.ends.size(), 1);
  return cut;
}

ir::Result<StageCut> PlanCutter::cut(const RunRequest& run,
                                     std::uint32_t stages,
                                     const std::vector<std::optional<ir::Bytes>>& limits) const {
  const ir::Result<scheduler::Promises> promises = promises_of(run, stages);
  if (!promises.ok()) {
    return promises.error();
  }
  ir::Result<std::vector<scheduler::StageTerms>> terms =
      scheduler::stage_terms(workload_.profile,
                             {.layers_per_stage = {},
                              .batch_size = workload_.samples_per_mini_batch(run.micro_batches),
                              .micro_batches = run.policy->whole_mini_batch ? 1 : run.micro_batches,
                              .optimizer = workload_.optimizer,
                              .extrapolation = run.policy->extrapolation,
                              .placement = {},
                              .task_overhead = workload_.task_overhead,
                              .recompute = workload_.passes.recompute},
                             workload_.cluster, promises.value());
  if (!terms.ok()) {
    return terms.error();
  }
  for (std::uint32_t k = 0; k < stages; ++k) {
    terms.value()[k].memory_bytes = limits[k];
  }
  scheduler::ChainProblem problem{cuts_, after_, std::move(terms).value()};
  const ir::Result<scheduler::ChainPlan> plan = scheduler::plan_chain(problem);
  if (!plan.ok()) {
    return plan.error();
  }
  StageCut cut = stages_at(plan.value());
  std::uint32_t begin = 0;
  for (std::uint32_t k = 0; k < stages; ++k) {
    const std::uint32_t end = plan.value().ends[k];
    cut.held_bytes.push_back(
        scheduler::held_bytes(problem.stages[k], problem.cuts[begin], problem.cuts[end]));
    begin = end;
  }
  const std::string compressed = compression_reason(found_);
  const char* over =
      search_ == Search::Order
          ? "no contiguous cut of the layers in the file's order has a faster "
            "slowest stage or transfer"
          : "no cut along the network's edges has a faster slowest stage or transfer";
  cut.exact = true;
  cut.reason = over;
  if (!compressed.empty()) {
    cut.exact = false;
    cut.reason = compressed;
  } else if (workload_.passes.recompute != scheduler::Recompute::None) {
    cut.exact = false;
    cut.reason = "with --recompute the memory that a cut takes was estimated";
  } else {
    // A tensor that skips a stage is counted on links where it does not go. Without those the
    // bottleneck can only fall; where it does not, no cut is better than the one found.
    for (scheduler::CutPoint& point : problem.cuts) {
      point.crossing_bytes = point.needed_bytes;
    }
    const ir::Result<scheduler::ChainPlan> least = scheduler::plan_chain(problem);
    if (!least.ok() || least.value().bottleneck != plan.value().bottleneck) {
      cut.exact = false;
      cut.reason = "a tensor that skips a stage was counted on every link that it passes by";
    }
  }
  return cut;
}

ir::Result<PipedreamCut> PlanCutter::pipedream(const scheduler::PipedreamRequest& request) const {
  PipedreamCut result;
  result.request = request;
  const scheduler::Cuts* found = &found_;
  scheduler::Cuts fewer;
  if (request.levels.size() > 1 && found_.antichains.size() > kMostAntichainsOnLevels) {
    fewer = scheduler::bounded_antichains(scheduler::layer_graph(workload_.profile),
                                          kMostAntichainsOnLevels);
    found = &fewer;
  }
  ir::Result<scheduler::PipedreamPlan> plan = scheduler::pipedream_plan(found->antichains, request);
  if (!plan.ok()) {
    return plan.error();
  }
  std::vector<std::uint32_t> states;
  for (const scheduler::PipedreamStage& stage : plan.value().stages) {
    states.push_back(stage.end - 1);
  }
  result.cut = stages_of_parts(workload_.profile, *found, states);
  for (std::size_t k = 0; k < states.size(); ++k) {
    result.cut.replicas[k] = plan.value().stages[k].replicas;
  }
  const std::string compressed = compression_reason(*found);
  result.cut.exact = compressed.empty();
  result.cut.reason = compressed.empty()
                          ? "no cut and no replication is faster by PipeDream's formula"
                          : compressed;
  result.antichains = found->antichains.size();
  result.plan = std::move(plan).value();
  return result;
}

ir::Result<StageCut> cut_by_hand(const Workload& workload, const scheduler::Partition& partition) {
  if (ir::Status status = scheduler::check_partition(workload.profile, partition); !status.ok()) {
    return status.error();
  }
  StageCut cut;
  cut.profile = workload.profile;
  cut.partition = partition;
  cut.replicas.assign(partition.size(), 1);
  cut.reason = "the cut was given with --partition; none other was tried";
  return cut;
}

}  // namespace xpipe::app
