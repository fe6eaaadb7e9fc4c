#include "policies/spectrain.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"

namespace xpipe::policies {
namespace {

using scheduler::PlanRequest;

/// In steady state.
struct StageDistances {
  ir::Distance forward = 0;
  ir::Distance backward = 0;
};

bool predicts_again(const PlanRequest& request) {
  return request.options.at("variant") == "1";
}

StageDistances distances_of(const PlanRequest& request, std::uint32_t stage) {
  const std::uint32_t later = predicts_again(request) ? stage / 2 : 0;
  return {static_cast<ir::Distance>(later + request.stages - stage - 1),
          static_cast<ir::Distance>(later)};
}

ir::Result<ir::ComputePlan> plan_spectrain(const PlanRequest& request) {
  if (request.is_replicated()) {
    return ir::make_error(
        ir::ErrorKind::Usage, "replicas", "--replicas",
        "policy 'spectrain' has no replicas: its prediction distances count one update for each "
        "mini-batch, and a replicated stage makes one for several; use pipedream or xpipe");
  }
  scheduler::PlanBuilder plan(request);
  std::vector<ir::WantedWeights> forward_weights(request.mini_batches);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const StageDistances steady = distances_of(request, k);
    for (const auto& [pass, i] : scheduler::one_f_one_b(request.stages, k, request.mini_batches)) {
      const ir::Version newest = plan.newest_version(k);
      if (pass == ir::Pass::Forward) {
        forward_weights[i] = scheduler::PlanBuilder::predicted(
            newest, scheduler::distance_from_start(steady.forward, steady.backward, i), pass, i);
        plan.forward(k, i, forward_weights[i]);
      } else {
        plan.backward(k, i,
                      predicts_again(request)
                          ? scheduler::PlanBuilder::predicted(newest, steady.backward, pass, i)
                          : forward_weights[i]);
        plan.step(k, i);
      }
    }
  }
  return std::move(plan).take();
}

/// Variant 1 makes a copy for one pass and drops it. Variant 2 keeps it from forward to backward:
/// one for each mini-batch in flight but the segment's first, which reads the master.
std::uint32_t spectrain_versions(const PlanRequest& request,
                                 std::uint32_t in_flight,
                                 const scheduler::StagePromise& promise) {
  if (promise.predict_forward == 0 && promise.predict_backward == 0) {
    return 1;
  }
  if (predicts_again(request)) {
    return 2;
  }
  return request.mini_batches > in_flight ? 1 + in_flight : in_flight;
}

scheduler::Promises promise_spectrain(const PlanRequest& request) {
  scheduler::Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{request.mini_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const StageDistances steady = distances_of(request, k);
    scheduler::StagePromise promise;
    promise.in_flight = scheduler::one_f_one_b_warm_up(request.stages, k, request.mini_batches);
    promise.forward_staleness = scheduler::one_f_one_b_staleness(request, k);
    promise.backward_staleness = predicts_again(request) ? 0 : promise.forward_staleness;
    promise.predict_forward =
        scheduler::distance_from_start(steady.forward, steady.backward, request.mini_batches - 1);
    promise.predict_backward = steady.backward;
    promise.versions_held = spectrain_versions(request, promise.in_flight, promise);
    promises.stages.push_back(promise);
  }
  promises.equals_sequential = scheduler::reads_as_sequential(promises.stages);
  return promises;
}

}  // namespace

scheduler::Policy spectrain() {
  scheduler::Policy policy;
  policy.name = "spectrain";
  policy.summary = "1F1B of whole mini-batches without a flush; weights predicted by momentum";
  policy.source = "SpecTrain (Chen et al., arXiv 1809.02839); methods.md 2";
  policy.options = {
      {"variant",
       {"1", "2"},
       "1",
       "1: predicts for the backward again (paper); 2: reuses the forward's weights (repository)",
       {}},
      {"gamma",
       {},
       "0.9",
       "smoothing of the gradient where the optimizer has no momentum buffer",
       scheduler::NumberRange{0.0, 1.0}},
  };
  policy.whole_mini_batch = true;
  policy.extrapolation = scheduler::Extrapolation::SmoothedGradient;
  policy.promise_text = {
      .bubble = "(D-1)/(N+D-1), only at the ends of a segment",
      .in_flight = "min(D-k, N)",
      .versions_held = "2; with variant=2 D-k+1, on the last stage 1",
      .staleness = "forward D-1-k, backward 0; with variant=2 D-1-k in both",
      .prediction =
          "forward floor(k/2)+D-k-1, backward floor(k/2); with variant=2 forward D-k-1; "
          "equals sequential training where D=1"};
  policy.plan = &plan_spectrain;
  policy.promises = &promise_spectrain;
  return policy;
}

}  // namespace xpipe::policies
