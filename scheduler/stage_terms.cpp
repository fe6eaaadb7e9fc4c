#include "scheduler/stage_terms.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace xpipe::scheduler {

namespace {

using ir::DeviceId;
using ir::index_of;
using std::size_t;

constexpr std::int64_t kUnit = 1'000'000'000;  // ns, or bytes

/// Stages that feed each other, each of one unit of everything.
ir::Profile unit_profile(std::uint32_t stages, std::uint32_t samples) {
  ir::Profile profile;
  profile.samples = samples;
  for (std::uint32_t k = 0; k < stages; ++k) {
    ir::LayerProfile layer;
    layer.name = "stage " + std::to_string(k);
    layer.forward = kUnit;
    layer.output_bytes = layer.saved_bytes = layer.saved_for_weight_bytes = kUnit;
    layer.parameter_bytes = kUnit;
    profile.layers.push_back(std::move(layer));
    if (k > 0) {
      profile.edges.push_back({k - 1, k});
    }
  }
  return profile;
}

double ns_per_byte(const ir::LinkSpec* link) {
  return link == nullptr || !link->bandwidth_bytes_per_s ? 0.0 : 1e9 / *link->bandwidth_bytes_per_s;
}

/// Forward one way and backward the other: at once, or one after the other.
double ns_per_boundary_byte(const CostModel& costs, size_t stage) {
  const DeviceId from{static_cast<std::uint16_t>(stage)};
  const DeviceId to{static_cast<std::uint16_t>(stage + 1)};
  const ir::LinkSpec* out = find_link(costs, from, to);
  const ir::LinkSpec* back = find_link(costs, to, from);
  const double there = ns_per_byte(out);
  const double again = ns_per_byte(back);
  const bool is_half = (out != nullptr && out->duplex == ir::Duplex::Half) ||
                       (back != nullptr && back->duplex == ir::Duplex::Half);
  return is_half ? there + again : std::max(there, again);
}

}  // namespace

ir::Result<std::vector<StageTerms>> stage_terms(const ir::Profile& profile,
                                                const StageCostRequest& request,
                                                const ir::Cluster& cluster,
                                                const Promises& promises) {
  const auto stages = static_cast<std::uint32_t>(promises.stages.size());
  StageCostRequest units = request;
  units.layers_per_stage.assign(stages, 1);
  units.placement.clear();
  const ir::Result<StagedModel> asked =
      stage_costs(unit_profile(stages, profile.samples), units, cluster);
  units.batch_size = profile.samples;
  units.micro_batches = 1;
  const ir::Result<StagedModel> whole =
      stage_costs(unit_profile(stages, profile.samples), units, cluster);
  for (const auto* model : {&asked, &whole}) {
    if (!model->ok()) {
      return model->error();
    }
  }
  const CostModel& costs = asked.value().costs;
  const double mini_batches = static_cast<double>(profile.samples) / request.batch_size;
  std::vector<StageTerms> terms;
  for (std::uint32_t k = 0; k < stages; ++k) {
    const StagePromise& promise = promises.stages[k];
    const StageCosts& stage = costs.stages[k];
    const std::uint32_t predictions =
        (promise.predict_forward > 0 ? 1U : 0U) + (promise.predict_backward > 0 ? 1U : 0U);
    const std::uint32_t stashes = promise.versions_held > 1 + predictions ? 1U : 0U;
    const double per_mini_batch =
        static_cast<double>(stage.step + stage.all_reduce) +
        static_cast<double>(predictions) * static_cast<double>(stage.predict) +
        static_cast<double>(stashes) * static_cast<double>(stage.stash);
    const double launch = static_cast<double>(
        costs.task_overhead + (costs.launch_overhead.empty() ? 0 : costs.launch_overhead[k]));
    const bool recomputes = request.recompute != Recompute::None;
    const double launches =
        (recomputes ? 3.0 : 2.0) * request.micro_batches + 1 + predictions + stashes;
    const std::int64_t copies = promise.versions_held + 1;
    terms.push_back({.slowness = static_cast<double>(whole.value().costs.stages[k].forward) / kUnit,
                     .overhead = std::llround(launch * launches * mini_batches),
                     .ns_per_parameter_byte = per_mini_batch * mini_batches / kUnit,
                     .ns_per_sent_byte = k + 1 < stages ? ns_per_boundary_byte(costs, k) : 0.0,
                     .held_per_saved_byte = static_cast<double>(stage.saved_bytes) *
                                            (recomputes ? 1.0 : promise.in_flight) / kUnit,
                     .held_per_parameter_byte =
                         static_cast<double>(copies) +
                         static_cast<double>(stage.optimizer_bytes +
                                             (predictions > 0 ? stage.prediction_bytes : 0)) /
                             kUnit,
                     .recomputes = recomputes,
                     .memory_bytes = cluster.devices[k].memory_bytes});
  }
  return terms;
}

}  // namespace xpipe::scheduler
