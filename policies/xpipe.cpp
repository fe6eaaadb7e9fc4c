#include "policies/xpipe.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "policies/version_difference.h"
#include "scheduler/orders.h"
#include "scheduler/plan_builder.h"

namespace xpipe::policies {
namespace {

using scheduler::PlanRequest;

/// What `--set` chose.
struct Choice {
  VersionDifference difference = VersionDifference::Paper;
  Rounding rounding = Rounding::Floor;
  bool predict_forward = true;
  bool predict_backward = true;
};

/// Requires: complete and legal options (resolve_options).
Choice choice_of(const scheduler::Options& options) {
  const std::string& difference = options.at("version-difference");
  const std::string& rounding = options.at("rounding");
  const std::string& predict = options.at("predict");
  return {.difference = difference == "paper"     ? VersionDifference::Paper
                        : difference == "horizon" ? VersionDifference::Horizon
                                                  : VersionDifference::Local,
          .rounding = rounding == "floor"       ? Rounding::Floor
                      : rounding == "half-even" ? Rounding::HalfEven
                                                : Rounding::HalfUp,
          .predict_forward = predict != "none",
          .predict_backward = predict == "both"};
}

Distances distances_of(const Choice& choice, const PlanRequest& request, std::uint32_t stage) {
  return version_difference(choice.difference, choice.rounding, request.depth(),
                            request.micro_batches, request.place(stage));
}

ir::Result<ir::ComputePlan> plan_xpipe(const PlanRequest& request) {
  const Choice choice = choice_of(request.options);
  const std::uint32_t size = request.micro_batches;
  scheduler::PlanBuilder plan(request);
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const Distances steady = distances_of(choice, request, k);
    ir::WantedWeights forward_copy;
    ir::WantedWeights backward_copy;
    for (const auto& [pass, j] :
         scheduler::one_f_one_b(request.depth(), request.place(k), size * request.mini_batches)) {
      const std::uint32_t i = j / size;
      const bool bellwether = j % size == 0;
      if (pass == ir::Pass::Forward) {
        if (bellwether) {
          const ir::Distance ahead =
              scheduler::distance_from_start(steady.forward, steady.backward, i);
          forward_copy = scheduler::PlanBuilder::predicted(plan.newest_version(k), ahead, pass, i);
          if (choice.predict_forward) {
            plan.predict(k, forward_copy);
          }
        }
        plan.forward(k, j, choice.predict_forward ? forward_copy : plan.newest(k));
      } else {
        if (bellwether) {
          backward_copy =
              scheduler::PlanBuilder::predicted(plan.newest_version(k), steady.backward, pass, i);
          if (choice.predict_backward) {
            plan.predict(k, backward_copy);
          }
        }
        plan.backward(k, j, choice.predict_backward ? backward_copy : plan.newest(k));
        if (j % size == size - 1) {
          plan.step(k, i);
        }
      }
    }
  }
  return std::move(plan).take();
}

/// A stage holds the master, and while they have readers the bellwether's forward copy and its
/// backward copy: the two at once as soon as a forward stands between two backwards of one
/// mini-batch. With T = 1 each copy is gone before the next is made.
std::uint32_t xpipe_versions(const PlanRequest& request,
                             std::uint32_t admitted,
                             const scheduler::StagePromise& promise) {
  const bool at_once =
      request.micro_batches > 1 && request.micro_batches * request.mini_batches > admitted;
  const std::uint32_t copies =
      (promise.predict_forward > 0 ? 1U : 0U) + (promise.predict_backward > 0 ? 1U : 0U);
  return 1 + (at_once ? copies : std::min(copies, 1U));
}

scheduler::Promises promise_xpipe(const PlanRequest& request) {
  const Choice choice = choice_of(request.options);
  const std::uint32_t micro_batches = request.micro_batches * request.mini_batches;
  scheduler::Promises promises;
  promises.bubble_numerator = request.stages - 1;
  promises.bubble_denominator = std::uint64_t{micro_batches} + request.stages - 1;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    const Distances steady = distances_of(choice, request, k);
    scheduler::StagePromise promise;
    const std::uint32_t admitted =
        scheduler::one_f_one_b_warm_up(request.depth(), request.place(k), micro_batches);
    promise.in_flight = scheduler::in_flight_on_replica(request, k, admitted);
    promise.forward_staleness = scheduler::one_f_one_b_staleness(request, k);
    if (choice.predict_forward) {
      promise.predict_forward =
          scheduler::distance_from_start(steady.forward, steady.backward, request.mini_batches - 1);
    }
    if (choice.predict_backward) {
      promise.predict_backward = steady.backward;
    }
    promise.versions_held = xpipe_versions(request, admitted, promise);
    promises.stages.push_back(promise);
  }
  promises.equals_sequential = scheduler::reads_as_sequential(promises.stages);
  return promises;
}

}  // namespace

scheduler::Policy xpipe() {
  scheduler::Policy policy;
  policy.name = "xpipe";
  policy.summary =
      "1F1B without a flush; the first micro-batch of each mini-batch predicts weights";
  policy.source = "XPipe (Guan et al., arXiv 1911.04610); methods.md 1";
  policy.options = {
      {"version-difference",
       {"paper", "horizon", "local"},
       "paper",
       "steps to predict ahead: the paper's formula, its definition counted, or sequential",
       {}},
      {"rounding", {"floor", "half-even", "half-up"}, "floor", "of the paper's formula", {}},
      {"bias",
       {"standard", "literal"},
       "standard",
       "correction of the moments: with exponent t as in Adam, or as printed, without",
       {}},
      {"predict",
       {"both", "forward", "none"},
       "both",
       "passes on predicted weights; the others read the newest (none: PACI)",
       {}},
  };
  policy.promise_text = {
      .bubble = "(D-1)/(N*T+D-1), only at the ends of a segment",
      .in_flight = "min(D-k, N*T)",
      .versions_held = "at most 3; at most 2 with T=1 or predict=forward; 1 with predict=none",
      .staleness = "forward ceil((D-1-k)/T), backward 0",
      .prediction =
          "forward floor((D+T-k/2-2)/T), backward floor((T+floor(k/2)-1)/T) with "
          "version-difference=paper, rounding=floor; equals sequential training where all are 0"};
  policy.plan = &plan_xpipe;
  policy.promises = &promise_xpipe;
  return policy;
}

}  // namespace xpipe::policies
