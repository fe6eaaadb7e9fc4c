#include "scheduler/compile.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "ir/decimal.h"
#include "ir/validate.h"
#include "scheduler/accumulation_pass.h"
#include "scheduler/communication_pass.h"
#include "scheduler/exchange_pass.h"
#include "scheduler/placement_pass.h"
#include "scheduler/weights_pass.h"

namespace xpipe::scheduler {

namespace {

using ir::Error;
using ir::ErrorKind;
using ir::index_of;

/// One compute operation is at most a handful of tasks, and a TaskId has 32
/// bits.
constexpr std::uint64_t kMaxComputeOps = std::uint64_t{1} << 28;

ir::Status check_sizes(const PlanRequest& request) {
  Error error{ErrorKind::Usage, {}};
  const auto require = [&error](const char* option, std::uint32_t value, std::uint32_t most) {
    if (value < 1 || value > most) {
      error.diagnostics.push_back({"size", option,
                                   "found " + std::to_string(value) +
                                       ", expected a whole number from 1 to " +
                                       std::to_string(most)});
    }
  };
  require("--stages", request.stages, std::numeric_limits<std::uint16_t>::max());
  require("--micro-batches", request.micro_batches, 1U << 24);
  require("--mini-batches", request.mini_batches, 1U << 24);
  if (error.diagnostics.empty()) {
    const std::uint64_t ops = std::uint64_t{2} * request.stages * request.micro_batches +
                              (request.is_replicated() ? 3 * request.depth() : 0);
    if (ops > kMaxComputeOps / request.mini_batches) {
      error.diagnostics.push_back({"size", "--mini-batches",
                                   "stages x micro-batches x mini-batches make more than " +
                                       std::to_string(kMaxComputeOps) +
                                       " compute tasks, too many for one segment; simulate fewer "
                                       "mini-batches"});
    }
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(error);
}

/// Stages step together where they exchange gradients: an asynchronous policy would have to stop
/// for that, and so be another one.
ir::Status check_exchanges(const Policy& policy,
                           const PlanRequest& request,
                           const StageGraph& graph,
                           const Passes& passes) {
  if (!passes.clip_norm && graph.ties.empty() && passes.accumulate == 1) {
    return {};
  }
  if (!policy.promises(request).equals_sequential) {
    if (passes.accumulate != 1) {
      return ir::make_error(
          ErrorKind::Usage, "accumulate", "--accumulate",
          "policy '" + policy.name +
              "' predicts, stashes or reads weights by the step of each mini-batch, and would be "
              "another one with a step for several; use a synchronous policy such as gpipe, or "
              "larger mini-batches");
    }
    const std::string steps =
        "policy '" + policy.name + "' steps each stage as soon as its own gradients are there";
    if (passes.clip_norm) {
      return ir::make_error(ErrorKind::Usage, "clip-norm", "--clip-norm",
                            steps +
                                ", and the norm over all stages would stop them all at every step; "
                                "use a synchronous policy such as gpipe, or drop --clip-norm");
    }
    const StageTie& tie = graph.ties.front();
    return ir::make_error(
        ErrorKind::Usage, "tied-weights",
        "stages " + std::to_string(index_of(tie.first)) + " and " +
            std::to_string(index_of(tie.second)),
        "they share weights, and " + steps +
            ", so the two copies would part; use a synchronous policy such as gpipe, untie the "
            "weights, or cut the model so that one stage has both");
  }
  for (const StageTie& tie : graph.ties) {
    for (const ir::StageId stage : {tie.first, tie.second}) {
      if (request.replicas_of(index_of(stage)) > 1) {
        return ir::make_error(ErrorKind::Usage, "tied-weights", "--replicas",
                              "stage " + std::to_string(index_of(stage)) + " has " +
                                  std::to_string(request.replicas_of(index_of(stage))) +
                                  " replicas and shares weights with another stage; give it one");
      }
    }
  }
  return {};
}

/// The policy's plan for a complete request, with as many replicas as were asked for.
ir::Result<ir::ComputePlan> make_plan(const Policy& policy, const PlanRequest& request) {
  ir::Result<ir::ComputePlan> plan = policy.plan(request);
  if (!plan.ok()) {
    return plan.error();
  }
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    if (plan.value().placement[k].size() != request.replicas_of(k)) {
      return ir::make_error(ErrorKind::Usage, "replicas", "--replicas",
                            "policy '" + policy.name + "' does not replicate stages; drop it");
    }
  }
  return plan;
}

}  // namespace

ir::Result<ir::Schedule> compile(const Policy& policy,
                                 const PlanRequest& request,
                                 const StageGraph& graph,
                                 const Passes& passes) {
  PlanRequest complete = request;
  if (passes.layout) {
    XPIPE_CHECK(passes.layout->replicas.size() == request.stages)
        << "a layout of " << passes.layout->replicas.size() << " stages for " << request.stages;
    complete.replicas = passes.layout->replicas;
  }
  if (!complete.is_replicated()) {
    complete.replicas.clear();
  }
  if (ir::Status sizes = check_sizes(complete); !sizes.ok()) {
    return sizes.error();
  }
  ir::Result<Options> options = resolve_options(policy, request.options);
  if (!options.ok()) {
    return options.error();
  }
  complete.options = options.value();
  if (policy.whole_mini_batch) {
    complete.micro_batches = 1;
  }
  ir::Result<ir::ComputePlan> plan = make_plan(policy, complete);
  if (!plan.ok()) {
    return plan.error();
  }
  if (ir::Status exchanges = check_exchanges(policy, complete, graph, passes); !exchanges.ok()) {
    return exchanges.error();
  }
  if (passes.accumulate > 1) {
    accumulate_steps(passes.accumulate, plan.value());
    complete.options.emplace(kAccumulateOption, std::to_string(passes.accumulate));
  }
  add_exchanges(graph, passes.clip_norm.has_value(), plan.value());
  if (passes.clip_norm) {
    complete.options.emplace(kClipNormOption, ir::number_text(*passes.clip_norm));
  }
  if (passes.layout) {
    plan = place(std::move(plan).value(), *passes.layout, graph);
    if (!plan.ok()) {
      return plan.error();
    }
  }
  if (passes.recompute != Recompute::None) {
    add_recomputes(passes.recompute, plan.value());
    complete.options.emplace(kRecomputeOption, recompute_name(passes.recompute));
  }
  ir::Result<ir::Schedule> schedule =
      compile_plan(plan.value(), graph, policy.name, complete.options);
  if (!schedule.ok()) {
    return schedule.error();
  }
  if (passes.sends != Sends::Eager) {
    if (passes.sends == Sends::Rendezvous) {
      order_messages_by_consumer(schedule.value());
    }
    if (ir::Status added = add_send_waits(passes.sends, schedule.value()); !added.ok()) {
      return added.error();
    }
  }
  if (ir::Status legal = ir::check_legal(schedule.value()); !legal.ok()) {
    Error error = explain_deadlock(passes.sends, legal.error());
    const bool deadlock = passes.sends != Sends::Eager && error.diagnostics.front().code == "cycle";
    error.kind = deadlock ? ErrorKind::Illegal : ErrorKind::Internal;
    return error;
  }
  return schedule;
}

ir::Result<ir::Schedule> compile_plan(const ir::ComputePlan& plan,
                                      const StageGraph& graph,
                                      const std::string& name,
                                      const Options& options) {
  XPIPE_CHECK(graph.stages == plan.placement.size())
      << "a graph of " << graph.stages << " stages for a plan of " << plan.placement.size();
  ir::Result<ComputeLanes> compute = assign_weights(plan);
  if (!compute.ok()) {
    return compute.error();
  }
  ir::Schedule schedule;
  schedule.policy = name;
  schedule.options.assign(options.begin(), options.end());
  schedule.micro_batches = plan.micro_batches;
  schedule.mini_batches = plan.mini_batches;
  schedule.devices = static_cast<std::uint32_t>(plan.devices.size());
  for (std::size_t k = 0; k < plan.placement.size(); ++k) {
    schedule.stages.push_back({plan.placement[k], compute.value().slots[k]});
  }
  add_lanes_and_communication(compute.value(), graph, schedule);
  return schedule;
}

}  // namespace xpipe::scheduler
