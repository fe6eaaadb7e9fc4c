#include "policies/pipedream.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"

namespace xpipe::policies {
namespace {

using scheduler::PlanRequest;

bool vertical_sync(const PlanRequest& request) {
  return request.options.at("vertical-sync") == "true";
}

/// Versions count steps: stages with other numbers of replicas have other versions.
ir::Status check_replicas(const PlanRequest& request) {
  for (std::uint32_t k = 1; vertical_sync(request) && k < request.stages; ++k) {
    if (request.replicas_of(k) != request.replicas_of(0)) {
      return ir::make_error(
          ir::ErrorKind::Usage, "replicas", "--replicas",
          "found " + std::to_string(request.replicas_of(k)) + " for stage " + std::to_string(k) +
              " and " + std::to_string(request.replicas_of(0)) +
              " for stage 0: with vertical-sync=true all stages read the input stage's version, "
              "which needs as many replicas, and so steps, on each; give equal numbers or drop "
              "vertical-sync");
    }
  }
  return {};
}

ir::Result<ir::ComputePlan> plan_pipedream(const PlanRequest& request) {
  if (ir::Status replicas = check_replicas(request); !replicas.ok()) {
    return replicas.error();
  }
  scheduler::PlanBuilder plan(request);
  // By mini-batch; with vertical sync the input stage's reads hold for all stages.
  std::vector<ir::Version> read(request.mini_batches);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const std::uint32_t replicas = request.replicas_of(k);
    for (const auto& [pass, i] :
         scheduler::one_f_one_b(request.depth(), request.place(k), request.mini_batches)) {
      if (pass == ir::Pass::Forward) {
        if (k == 0 || !vertical_sync(request)) {
          read[i] = plan.newest_version(k);
        }
        plan.forward(k, i, scheduler::PlanBuilder::version(read[i]));
      } else {
        plan.backward(k, i, scheduler::PlanBuilder::version(read[i]));
        // Replicas average the gradients of one mini-batch each; the last step takes what is left.
        if (replicas == 1 || i % replicas == replicas - 1 || i == request.mini_batches - 1) {
          plan.step(k, i);
        }
      }
    }
  }
  return std::move(plan).take();
}

/// Versions stored at the peak when mini-batch i reads version max(0, i - delay). Version 0 serves
/// the first delay + 1 mini-batches and every later version one, so that a segment of N keeps
/// N - delay versions past the start, at most `delay` of them beside the master.
std::uint32_t pipedream_versions(std::uint32_t delay, std::uint32_t mini_batches) {
  if (delay == 0) {
    return 1;
  }
  return 1 + std::min(delay, mini_batches - delay);
}

scheduler::Promises promise_pipedream(const PlanRequest& request) {
  scheduler::Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{request.mini_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const std::uint32_t replicas = request.replicas_of(k);
    const std::uint32_t delay =
        scheduler::one_f_one_b_staleness(request, vertical_sync(request) ? 0 : k, replicas);
    const std::uint32_t steps = (request.mini_batches + replicas - 1) / replicas;
    scheduler::StagePromise promise;
    promise.in_flight = scheduler::in_flight_on_replica(
        request, k,
        scheduler::one_f_one_b_warm_up(request.depth(), request.place(k), request.mini_batches));
    promise.versions_held =
        replicas == 1 ? pipedream_versions(delay, steps) : 1 + std::min(delay, steps - 1);
    promise.forward_staleness = delay;
    promise.backward_staleness = delay;
    promises.stages.push_back(promise);
  }
  promises.equals_sequential = scheduler::reads_as_sequential(promises.stages);
  return promises;
}

}  // namespace

scheduler::Policy pipedream() {
  scheduler::Policy policy;
  policy.name = "pipedream";
  policy.summary =
      "1F1B of whole mini-batches without a flush; stashes the weights of each forward";
  policy.source = "PipeDream (Narayanan et al., SOSP'19), section 3.3";
  policy.options = {{"vertical-sync",
                     {"false", "true"},
                     "false",
                     "every stage reads the version that the input stage read",
                     {}}};
  policy.whole_mini_batch = true;
  policy.promise_text = {
      .bubble = "(D-1)/(N+D-1), only at the ends of a segment",
      .in_flight = "min(D-k, N)",
      .versions_held = "D-k; D with vertical-sync=true; with r replicas 1+ceil((R-1)/r)",
      .staleness =
          "D-1-k in both passes, on the same weights; D-1 with vertical-sync=true; with r "
          "replicas, whose step averages r mini-batches, ceil((R-1)/r)",
      .prediction = "none; equals sequential training where D=1"};
  policy.plan = &plan_pipedream;
  policy.promises = &promise_pipedream;
  return policy;
}

}  // namespace xpipe::policies
