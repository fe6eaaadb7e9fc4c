// Calibration, against a run whose every time is known: made by the simulator on a true profile and
// machine, and calibrated from a wrong one.
#include "traces/calibrate.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/stage_costs.h"
#include "simulator/simulate.h"
#include "tests/traces/trace_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;
using traces::TimelineFile;

const scheduler::Partition kPartition{1, 3};

/// Layers of forward f, 2 f, ... and backward twice that; the third has no parameters.
ir::Profile profile_of(Nanos forward, std::uint32_t samples) {
  ir::Profile profile;
  profile.name = "four";
  profile.samples = samples;
  for (std::uint32_t l = 0; l < 4; ++l) {
    ir::LayerProfile layer;
    layer.name = "layer " + std::to_string(l);
    layer.forward = forward * (l + 1);
    layer.backward_input = l == 0 ? 0 : layer.forward;
    layer.backward_weight = layer.forward;
    layer.output_bytes = 100 * samples;
    layer.saved_bytes = 200 * samples;
    layer.saved_for_weight_bytes = 200 * samples;
    layer.parameter_bytes = l == 2 ? 0 : 40;
    if (l != 2) {
      layer.update = forward / 2;
    }
    profile.layers.push_back(layer);
    if (l > 0) {
      profile.edges.push_back({l - 1, l});
    }
  }
  return profile;
}

scheduler::CostModel costs_of(const ir::Profile& profile,
                              const ir::Cluster& cluster,
                              const TraceCase& wanted,
                              std::uint32_t batch_size) {
  auto staged = scheduler::stage_costs(
      profile,
      {.layers_per_stage = kPartition,
       .batch_size = batch_size,
       .micro_batches = wanted.policy == "pipedream" ? 1 : wanted.micro_batches},
      cluster);
  REQUIRE_MESSAGE(staged.ok(), staged.error().to_string());
  return std::move(staged).value().costs;
}

TimelineFile run_of(const TraceCase& wanted, const scheduler::CostModel& costs) {
  TimelineFile run;
  run.schedule = schedule_for(wanted);
  run.timeline = simulator::simulate(run.schedule, costs);
  run.timeline.measured = true;
  run.info.title = "a run";
  run.info.layers = {{"layer 0"}, {"layer 1", "layer 2", "layer 3"}};
  return run;
}

ir::Cluster slow_links() {
  ir::LinkSpec link;
  link.latency = 1234;
  return scheduler::uniform_cluster(2, link);
}

TEST_CASE("calibrate: what is simulated afterwards is the run, to the nanosecond") {
  for (const TraceCase& wanted : {TraceCase{"gpipe", 2, 3, 4}, TraceCase{"gpipe", 2, 1, 2},
                                  TraceCase{"pipedream", 2, 1, 6}}) {
    CAPTURE(wanted.policy);
    CAPTURE(wanted.micro_batches);
    constexpr std::uint32_t kBatch = 8;  // three micro-batches do not divide it
    const TimelineFile run =
        run_of(wanted, costs_of(profile_of(1007, 5), slow_links(), wanted, kBatch));
    // Of other times and another batch, whose layers stand to each other as they do.
    const auto calibration = traces::calibrate(profile_of(333'333, 64), run, kBatch);
    REQUIRE_MESSAGE(calibration.ok(), calibration.error().to_string());
    CHECK(calibration.value().profile.samples == kBatch);
    const ir::Timeline again = simulator::simulate(
        run.schedule,
        costs_of(calibration.value().profile, calibration.value().cluster, wanted, kBatch));
    CHECK(again.spans == run.timeline.spans);
  }
}

TEST_CASE("calibrate: medians by stage; a stage's time is shared out in proportion") {
  TimelineFile run =
      run_of({"gpipe", 2, 2, 2}, costs_of(profile_of(100, 2), slow_links(), {"gpipe", 2, 2, 2}, 4));
  for (ir::Span& span : run.timeline.spans) {
    if (run.schedule.task(span.task).kind() == ir::TaskKind::Step) {
      span.end = span.start + 77;
    }
  }
  const auto calibration = traces::calibrate(profile_of(10, 4), run, 4);
  REQUIRE(calibration.ok());
  const std::vector<traces::StageMedians>& medians = calibration.value().medians;
  REQUIRE(medians.size() == 2);
  CHECK(medians[0].forward == 100);
  CHECK(medians[1].forward == 200 + 300 + 400);
  CHECK(medians[1].backward == 2 * 900);
  CHECK_FALSE(medians[1].backward_input.has_value());
  CHECK(medians[1].step == 77);
  const std::vector<ir::LayerProfile>& layers = calibration.value().profile.layers;
  CHECK(layers[1].forward == 2 * 200);  // of a mini-batch: T = 2
  CHECK(layers[3].forward == 2 * 400);
  CHECK(layers[1].update == 38);  // rounded down, the last takes what is left
  CHECK_FALSE(layers[2].update.has_value());
  CHECK(layers[3].update == 39);
  CHECK(layers[3].output_bytes == 400);
}

TEST_CASE("calibrate: the median of an even number is the mean of two, half up") {
  CHECK(traces::median({5}) == 5);
  CHECK(traces::median({9, 1, 4}) == 4);
  CHECK(traces::median({1, 2, 3, 100}) == 3);
}

TEST_CASE("calibrate: a plan, another model and a recomputed run are refused by name") {
  const TimelineFile run =
      run_of({"gpipe", 2, 1, 1}, costs_of(profile_of(100, 2), slow_links(), {"gpipe", 2, 1, 1}, 2));
  const auto code_of = [](const ir::Profile& profile, const TimelineFile& file) {
    const auto calibration = traces::calibrate(profile, file, 2);
    REQUIRE_FALSE(calibration.ok());
    return calibration.error().diagnostics.front().code;
  };
  TimelineFile plan = run;
  plan.timeline.measured = false;
  CHECK(code_of(profile_of(100, 2), plan) == "not-a-run");
  ir::Profile other = profile_of(100, 2);
  other.layers[2].name = "other";
  CHECK(code_of(other, run) == "other-layers");
  TimelineFile nameless = run;
  nameless.info.layers.clear();
  CHECK(code_of(profile_of(100, 2), nameless) == "other-layers");
  ir::Profile longer = profile_of(100, 2);
  longer.layers.push_back(longer.layers.back());
  CHECK(code_of(longer, run) == "other-layers");
}

}  // namespace
}  // namespace xpipe::tests
