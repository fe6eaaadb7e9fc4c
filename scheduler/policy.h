// A policy is a pure function from sizes and options to a compute plan, with
// its options and promises as data. It knows no clock, device, file, trace or
// other policy; scheduler/compile.h does the rest. Registered by one line in
// policies/register_all.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/compute_plan.h"
#include "ir/ids.h"
#include "ir/status.h"
#include "scheduler/optimizer_state.h"

namespace xpipe::scheduler {

using Options = std::map<std::string, std::string>;

/// The legal values of a numeric option, both ends included.
struct NumberRange {
  double low = 0.0;
  double high = 0.0;
};

/// One `--set name=value`.
struct OptionSpec {
  std::string name;
  std::vector<std::string> values;  ///< the legal ones, in order; empty for a number
  std::string default_value;
  std::string help;
  std::optional<NumberRange> range;  ///< for a number
};

/// What is asked of a policy. Options are complete (defaults filled in) and
/// legal: resolve_options() has seen to that before the policy runs.
struct PlanRequest {
  std::uint32_t stages = 1;         ///< D
  std::uint32_t micro_batches = 1;  ///< T
  std::uint32_t mini_batches = 1;   ///< N
  Options options;
  /// By StageId; empty: one each. Micro-batch j runs on replica j mod r of each stage.
  std::vector<std::uint32_t> replicas = {};

  [[nodiscard]] std::uint32_t replicas_of(std::uint32_t stage) const {
    return replicas.empty() ? 1 : replicas[stage];
  }

  /// Some stage has several.
  [[nodiscard]] bool is_replicated() const;

  /// A replicated pipeline counts like a straight one with a stage for each replica: it has depth()
  /// of them, and place(k) stand before stage k. Without replicas these are D and k.
  [[nodiscard]] std::uint32_t depth() const { return place(stages); }

  [[nodiscard]] std::uint32_t place(std::uint32_t stage) const;
};

/// A promise about one stage, on each of its replicas, in steady state; tests hold every schedule
/// against it. With replicas, `versions_held` need not be reached.
struct StagePromise {
  std::uint32_t in_flight = 0;      ///< micro-batches between forward and backward, at most
  std::uint32_t versions_held = 0;  ///< weight storages at the peak, master included, at most
  /// Staleness (design.md §3) of the weights read; the largest over the
  /// micro-batches of a mini-batch, which is the first one's.
  std::uint32_t forward_staleness = 0;
  std::uint32_t backward_staleness = 0;
  ir::Distance predict_forward = 0;  ///< distances; 0: does not predict
  ir::Distance predict_backward = 0;
};

struct Promises {
  /// The trajectory equals sequential training with gradient accumulation.
  bool equals_sequential = false;
  /// Bubble over total of the whole segment on equal stages without communication or replicas:
  /// numerator / denominator.
  std::uint64_t bubble_numerator = 0;
  std::uint64_t bubble_denominator = 1;
  std::vector<StagePromise> stages;  ///< by StageId
};

/// The promises as formulas, for people: printed by `xpipe policies`.
struct PromiseText {
  std::string bubble;
  std::string in_flight;
  std::string versions_held;
  std::string staleness;
  std::string prediction;
};

struct Policy {
  std::string name;
  std::string summary;
  std::string source;  ///< paper, section
  std::vector<OptionSpec> options;
  bool whole_mini_batch = false;  ///< the unit is the mini-batch: runs with T = 1 (design.md §10)
  Extrapolation extrapolation = Extrapolation::OptimizerStep;  ///< of its predictions
  PromiseText promise_text;
  /// Requires: sizes >= 1. Returns the plan, or Usage when the sizes are
  /// impossible for it.
  ir::Result<ir::ComputePlan> (*plan)(const PlanRequest&) = nullptr;
  Promises (*promises)(const PlanRequest&) = nullptr;
};

class PolicyRegistry {
 public:
  /// Requires: no policy of that name yet.
  void add(Policy policy);

  /// Errors: Usage, naming the policies there are and the nearest name.
  [[nodiscard]] ir::Result<const Policy*> find(std::string_view name) const;

  /// In the order of registration.
  [[nodiscard]] const std::vector<Policy>& all() const { return policies_; }

 private:
  std::vector<Policy> policies_;
};

/// Fills in defaults. Errors: Usage for every unknown option or illegal value,
/// with the legal ones.
[[nodiscard]] ir::Result<Options> resolve_options(const Policy& policy, const Options& given);

/// The candidate nearest to `word` by edit distance when it is near enough to
/// be a slip (J1).
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view word,
                                                      const std::vector<std::string>& candidates);

}  // namespace xpipe::scheduler
