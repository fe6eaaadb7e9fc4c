#include "scheduler/stage_costs.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/stage_sums.h"

namespace xpipe::scheduler {
namespace {

using ir::DeviceId;
using ir::StageId;

/// Four layers taken with 8 samples; a skip edge from layer 0 to layers 2 and 3.
///   0 -> 1 -> 2 -> 3,   0 -> 2,   0 -> 3
ir::Profile branchy() {
  ir::Profile profile;
  profile.name = "branchy";
  profile.samples = 8;
  profile.layers = {
      {"a", 1000, 1001, 1002, 800, 80, 40, 10},
      {"b", 2000, 2001, 2002, 1600, 160, 80, 20},
      {"c", 3000, 3001, 3002, 2400, 240, 120, 30},
      {"d", 4000, 4001, 4002, 3200, 320, 160, 40},
  };
  profile.edges = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}};
  return profile;
}

StagedModel model_of(const ir::Profile& profile,
                     const StageCostRequest& request,
                     const ir::Cluster& cluster) {
  auto result = stage_costs(profile, request, cluster);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().to_string()));
  return std::move(result).value();
}

/// A link of infinite bandwidth and this latency.
ir::LinkSpec after(ir::Nanos latency) {
  ir::LinkSpec link;
  link.latency = latency;
  return link;
}

bool has_note(const StagedModel& model, const std::string& part) {
  for (const std::string& note : model.costs.notes) {
    if (note.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_CASE("stage costs: layers are added up, scaled to the micro-batch, and rounded once") {
  // 12 samples in 2 micro-batches of a profile of 8: times 12/(2*8) = 3/4.
  const StagedModel model =
      model_of(branchy(), {.layers_per_stage = {2, 2}, .batch_size = 12, .micro_batches = 2},
               uniform_cluster(2, {}));
  const StageCosts& first = model.costs.stages[0];
  CHECK(first.forward == 2250);                                 // 3000 * 3/4
  CHECK(first.backward_input == 2252);                          // 3002 * 3/4 = 2251.5
  CHECK(first.backward_input + first.backward_weight == 4505);  // 6006 * 3/4 = 4504.5
  CHECK(first.saved_bytes == 180);
  CHECK(first.saved_for_weight_bytes == 90);
  CHECK(first.parameter_bytes == 30);  // parameters do not scale
  CHECK(first.optimizer_bytes == 60);  // adam by default
  CHECK(model.costs.stages[1].forward == 5250);
}

TEST_CASE("stage costs: a device's speed divides its times, not its bytes") {
  ir::Cluster cluster = uniform_cluster(2, {});
  cluster.devices[1].speed = 2.5;
  const StagedModel model = model_of(
      branchy(), {.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 1}, cluster);
  CHECK(model.costs.stages[0].forward == 3000);
  CHECK(model.costs.stages[1].forward == 2800);  // 7000 / 2.5
  CHECK(model.costs.stages[1].saved_bytes == 560);
}

TEST_CASE("stage costs: a tensor that crosses a cut is sent once to each stage that uses it") {
  // Cut 1,1,2: layer 0 goes to stage 1 (by 1) and once to stage 2 (by 2 and 3); layer 1 to stage 2.
  const StagedModel model =
      model_of(branchy(), {.layers_per_stage = {1, 1, 2}, .batch_size = 8, .micro_batches = 1},
               uniform_cluster(3, after(5)));
  const std::vector<StageLink> expected = {
      {StageId{0}, StageId{1}, 800}, {StageId{0}, StageId{2}, 800}, {StageId{1}, StageId{2}, 1600}};
  CHECK(model.graph.links == expected);
  CHECK(model.costs.links.size() == 6);  // three pairs, both directions
  // Cut 2,2: layers 0 and 1 both go to stage 1, as one message.
  const StagedModel two =
      model_of(branchy(), {.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 1},
               uniform_cluster(2, {}));
  CHECK(two.graph.links == std::vector<StageLink>{{StageId{0}, StageId{1}, 2400}});
}

TEST_CASE("stage costs: bytes of a message are rounded once, after the sum") {
  // (800 + 1600) * 1/(7*8) = 42.857
  const StagedModel model =
      model_of(branchy(), {.layers_per_stage = {2, 2}, .batch_size = 7, .micro_batches = 7},
               uniform_cluster(2, {}));
  CHECK(model.graph.links[0].bytes == 300);  // 2400 / 8
  const StagedModel third =
      model_of(branchy(), {.layers_per_stage = {2, 2}, .batch_size = 1, .micro_batches = 1},
               uniform_cluster(2, {}));
  CHECK(third.costs.stages[0].backward_input == 375);  // 3002 / 8 = 375.25
  CHECK(third.costs.stages[1].saved_bytes == 70);
}

TEST_CASE("stage costs: copies and updates touch the bytes of the header's table") {
  struct Row {
    OptimizerKind optimizer;
    ir::Bytes state;
    ir::Nanos step;
    ir::Nanos predict;
    ir::Bytes kept;           ///< for predictions of the optimizer's step
    ir::Bytes kept_smoothed;  ///< for those of a smoothed gradient
  };

  // P = 30 bytes at 1 byte a nanosecond: step 3P + 2O, predict 2P + O (+ P), stash 2P.
  const std::vector<Row> rows = {
      {OptimizerKind::Sgd, 0, 90, 90, 30, 30},
      {OptimizerKind::SgdMomentum, 30, 150, 90, 0, 0},
      {OptimizerKind::Adam, 60, 210, 120, 0, 30},
      {OptimizerKind::AdamW, 60, 210, 120, 0, 30},
      {OptimizerKind::RmsProp, 30, 150, 120, 30, 30},
  };
  ir::Cluster cluster = uniform_cluster(2, {});
  cluster.devices[0].memory_bandwidth_bytes_per_s = 1e9;
  for (const Row& row : rows) {
    CAPTURE(optimizer_name(row.optimizer));
    CHECK(optimizer_of_name(optimizer_name(row.optimizer)) == row.optimizer);
    const StagedModel model = model_of(branchy(),
                                       {.layers_per_stage = {2, 2},
                                        .batch_size = 8,
                                        .micro_batches = 1,
                                        .optimizer = row.optimizer},
                                       cluster);
    CHECK(model.costs.stages[0].optimizer_bytes == row.state);
    CHECK(model.costs.stages[0].step == row.step);
    CHECK(model.costs.stages[0].predict == row.predict);
    CHECK(model.costs.stages[0].prediction_bytes == row.kept);
    CHECK(model.costs.stages[0].stash == 60);
    CHECK(model.costs.stages[1].step == 0);
    CHECK(has_note(model, "free on device 1: no memory_bandwidth_bytes_per_s"));
    const StagedModel smoothed = model_of(branchy(),
                                          {.layers_per_stage = {2, 2},
                                           .batch_size = 8,
                                           .micro_batches = 1,
                                           .optimizer = row.optimizer,
                                           .extrapolation = Extrapolation::SmoothedGradient},
                                          cluster);
    CHECK(smoothed.costs.stages[0].predict == 90);
    CHECK(smoothed.costs.stages[0].prediction_bytes == row.kept_smoothed);
    CHECK(smoothed.costs.stages[0].optimizer_bytes == row.state);
  }
}

TEST_CASE("stage costs: data loading is left out and said to be") {
  ir::Profile profile = branchy();
  profile.data_loading = 12345;
  const StagedModel model =
      model_of(profile, {.layers_per_stage = {4}, .batch_size = 8, .micro_batches = 1},
               uniform_cluster(1, {}));
  CHECK(model.costs.stages[0].forward == 10000);
  CHECK(has_note(model, "12 us for 8 samples"));
}

TEST_CASE("stage costs: a step takes its layers' update times where all with parameters have one") {
  ir::Profile profile = branchy();
  profile.layers[0].update = 100;
  profile.layers[1].update = 31;
  profile.layers[2].update = 7;  // d has none: its stage is priced by bytes, here for nothing
  ir::Cluster cluster = uniform_cluster(2, {});
  cluster.devices[0].speed = 2.0;
  const StagedModel model =
      model_of(profile, {.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 4}, cluster);
  CHECK(model.costs.stages[0].step == 66);  // 131 / 2, whatever the micro-batch
  CHECK(model.costs.stages[1].step == 0);
  CHECK(has_note(model, "steps take the profile's update times"));
  CHECK(has_note(model, "predictions and stash copies are free on every device"));
  profile.layers[2].parameter_bytes = 0;
  profile.layers[2].update.reset();
  profile.layers[3].update = 5;
  const StagedModel whole =
      model_of(profile, {.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 4}, cluster);
  CHECK(whole.costs.stages[1].step == 5);
}

TEST_CASE("stage costs: costs at another size than the profile's are said to be linear") {
  const StagedModel same =
      model_of(branchy(), {.layers_per_stage = {4}, .batch_size = 8, .micro_batches = 1},
               uniform_cluster(1, {}));
  CHECK_FALSE(has_note(same, "linear in samples"));
  const StagedModel cut =
      model_of(branchy(), {.layers_per_stage = {4}, .batch_size = 8, .micro_batches = 2},
               uniform_cluster(1, {}));
  CHECK(has_note(cut, "linear in samples"));
}

TEST_CASE("stage costs: what cannot be is refused, all at once") {
  const auto bad = stage_costs(branchy(),
                               {.layers_per_stage = {2, 1},
                                .batch_size = 2,
                                .micro_batches = 4,
                                .placement = {{DeviceId{7}}}},
                               uniform_cluster(2, {}));
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().kind == ir::ErrorKind::Usage);
  const std::string text = bad.error().to_string();
  for (const char* part :
       {"2,1 places 3 layers", "4 micro-batches", "2 samples", "device 7", "places 1 stages"}) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, part, " in ", text);
  }
}

TEST_CASE("stage costs: a link that is needed and not listed is an error without a default") {
  ir::Cluster cluster = uniform_cluster(3, {});
  cluster.default_link.reset();
  cluster.links = {{DeviceId{1}, DeviceId{0}, true, after(3)}};
  const StageCostRequest request = {
      .layers_per_stage = {1, 1, 2}, .batch_size = 8, .micro_batches = 1};
  const auto bad = stage_costs(branchy(), request, cluster);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().kind == ir::ErrorKind::BadInput);
  REQUIRE(bad.error().diagnostics.size() == 4);
  CHECK(bad.error().diagnostics[0].where == "link 0>2");
  // Symmetric: the listed link serves 0>1 as well.
  cluster.default_link = after(9);
  const StagedModel model = model_of(branchy(), request, cluster);
  CHECK(find_link(model.costs, DeviceId{0}, DeviceId{1})->latency == 3);
  CHECK(find_link(model.costs, DeviceId{0}, DeviceId{2})->latency == 9);
}

TEST_CASE("stage costs: stages on one device need no link") {
  ir::Cluster cluster = uniform_cluster(1, {});
  cluster.default_link.reset();
  const StagedModel model = model_of(branchy(),
                                     {.layers_per_stage = {2, 2},
                                      .batch_size = 8,
                                      .micro_batches = 1,
                                      .placement = {{DeviceId{0}}, {DeviceId{0}}}},
                                     cluster);
  CHECK(model.costs.links.empty());
}

TEST_CASE("stage costs: recomputation keeps inputs, each tensor once; a layer's part comes back") {
  // branchy(): outputs 800, 1600, 2400, 3200; saved 80, 160, 240, 320; cut a b | c d.
  //   stage 1 reads a (for c and d) and b; its layers read a, b and c.
  const auto costs_with = [](Recompute recompute) {
    return model_of(branchy(),
                    {.layers_per_stage = {2, 2},
                     .batch_size = 8,
                     .micro_batches = 1,
                     .recompute = recompute},
                    uniform_cluster(2, {}))
        .costs.stages[1];
  };
  CHECK(costs_with(Recompute::None).kept_bytes == 0);
  const StageCosts stage = costs_with(Recompute::Stage);
  const ir::LayerProfile& a = branchy().layers[0];
  const ir::Bytes inputs = a.output_bytes + branchy().layers[1].output_bytes;
  CHECK(stage.kept_bytes == inputs);
  CHECK(stage.recomputed_bytes == stage.saved_bytes);
  const StageCosts layer = costs_with(Recompute::Layer);
  CHECK(layer.kept_bytes == inputs + branchy().layers[2].output_bytes);
  CHECK(layer.recomputed_bytes == layer.kept_bytes + branchy().layers[3].saved_bytes);
}

TEST_CASE("stage costs: the largest workspace of a stage's layers, scaled to the micro-batch") {
  ir::Profile profile = branchy();
  profile.layers[0].workspace_bytes = 100;
  profile.layers[1].workspace_bytes = 60;
  const StagedModel model =
      model_of(profile, {.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 2},
               uniform_cluster(2, {}));
  CHECK(model.costs.stages[0].workspace_bytes == 50);
  CHECK(model.costs.stages[1].workspace_bytes == 0);
}

TEST_CASE("stage costs: tied weights are once on a stage, and a copy on each of two (E4)") {
  // 1000 parameters of 4 bytes, 200 of them shared by the first and the last of four layers.
  ir::Profile profile;
  profile.samples = 1;
  for (const ir::Bytes numbers : {400, 200, 200, 400}) {
    ir::LayerProfile layer;
    layer.name = "layer " + std::to_string(profile.layers.size());
    layer.parameter_bytes = 4 * numbers;
    profile.layers.push_back(layer);
  }
  profile.edges = {{0, 1}, {1, 2}, {2, 3}};
  profile.ties = {{0, 3, 800}};
  const auto parameters = [&profile](const Partition& partition) {
    const std::vector<StageSums> sums = sums_by_stage(profile, partition);
    ir::Bytes all = 0;
    for (const StageSums& stage : sums) {
      all += stage.parameters;
    }
    return all;
  };
  CHECK(parameters({4}) == 4 * 1000);
  CHECK(parameters({1, 1, 1, 1}) == 4 * 1200);
  CHECK(graph_of(profile, {4}).ties.empty());
  CHECK(graph_of(profile, {1, 1, 1, 1}).ties ==
        std::vector<StageTie>{{StageId{0}, StageId{3}, 800}});
  // Weights, gradients and state over all devices.
  for (const auto& [optimizer, bytes] :
       {std::pair{OptimizerKind::Sgd, 9600}, std::pair{OptimizerKind::SgdMomentum, 14400},
        std::pair{OptimizerKind::Adam, 19200}}) {
    const StagedModel model = model_of(profile,
                                       {.layers_per_stage = {1, 1, 1, 1},
                                        .batch_size = 1,
                                        .micro_batches = 1,
                                        .optimizer = optimizer},
                                       uniform_cluster(4, {1e9, 100, ir::Duplex::Full}));
    ir::Bytes all = 0;
    for (const StageCosts& stage : model.costs.stages) {
      all += 2 * stage.parameter_bytes + stage.optimizer_bytes;
    }
    CHECK(all == bytes);
    // A ring of two devices: all bytes over both links, two latencies.
    CHECK(model.costs.stages[0].sum_tied == 800 + 2 * 100);
    CHECK(model.costs.stages[1].sum_tied == 0);
    CHECK(model.costs.stages[3].sum_tied == 1000);
  }
}

TEST_CASE("stage costs: a clip reads the gradients, sends a number round, and scales them") {
  ir::Cluster cluster = uniform_cluster(2, {1e9, 100, ir::Duplex::Full});
  cluster.devices[0].memory_bandwidth_bytes_per_s = 1e9;
  const StageCostRequest request{.layers_per_stage = {2, 2}, .batch_size = 8, .micro_batches = 1};
  StageCostRequest clipping = request;
  clipping.clips = true;
  const CostModel plain = model_of(branchy(), request, cluster).costs;
  const StagedModel model = model_of(branchy(), clipping, cluster);
  CHECK(plain.stages[0].clip_norm == 0);
  // A ring of two: 8 bytes over each link in all, two latencies; three copies of the parameters.
  const ir::Nanos norms = 8 + 2 * 100;
  CHECK(model.costs.stages[0].clip_norm == norms + 3 * model.costs.stages[0].parameter_bytes);
  CHECK(model.costs.stages[1].clip_norm == norms);
  CHECK(has_note(model, "stash copies and clips are free on device 1"));
}

TEST_CASE("stage costs: a stage's replicas cost what their devices make of it, and all-reduce") {
  ir::Cluster cluster = uniform_cluster(3, {1e9, 100, ir::Duplex::Full});
  cluster.devices[1].speed = 0.5;
  cluster.devices[2].launch_overhead = 7;
  cluster.devices[0].overlap_slowdown = 1.25;
  const StagedModel model = model_of(branchy(),
                                     {.layers_per_stage = {2, 2},
                                      .batch_size = 8,
                                      .micro_batches = 1,
                                      .placement = {{DeviceId{0}, DeviceId{1}}, {DeviceId{2}}}},
                                     cluster);
  const CostModel& costs = model.costs;
  CHECK(costs_on(costs, StageId{0}, DeviceId{0}).forward == 3000);
  CHECK(costs_on(costs, StageId{0}, DeviceId{1}).forward == 6000);
  CHECK(costs.replicas.size() == 1);
  // Ring of two: both links carry all bytes of the 30 (layers a and b), two steps of latency.
  CHECK(costs.stages[0].all_reduce == costs.stages[0].parameter_bytes + 2 * 100);
  CHECK(costs_on(costs, StageId{0}, DeviceId{1}).all_reduce == costs.stages[0].all_reduce);
  CHECK(costs.stages[1].all_reduce == 0);
  CHECK(costs.launch_overhead == std::vector<ir::Nanos>{0, 0, 7});
  CHECK(costs.overlap_slowdown == std::vector<double>{1.25, 1.0, 1.0});
  CHECK(has_note(model, "all-reduces take the time of a ring"));
  // Tensors between 0 and 2 and between 1 and 2, gradients between 0 and 1.
  CHECK(costs.links.size() == 6);
}

TEST_CASE("stage costs: replicas meet where the rounds of their micro-batches make them") {
  // Two and four replicas: micro-batch j goes to j mod 2 and to j mod 4, so 0 meets 0 and 2.
  ir::Cluster cluster = uniform_cluster(6, {1e9, 0, ir::Duplex::Full});
  const auto device = [](int d) { return DeviceId(static_cast<std::uint16_t>(d)); };
  const StagedModel model = model_of(
      branchy(),
      {.layers_per_stage = {2, 2},
       .batch_size = 8,
       .micro_batches = 8,
       .placement = {{device(0), device(1)}, {device(2), device(3), device(4), device(5)}}},
      cluster);
  for (const auto& [from, to, meets] : std::vector<std::tuple<int, int, bool>>{
           {0, 2, true}, {0, 3, false}, {0, 4, true}, {1, 3, true}, {1, 4, false}, {1, 5, true}}) {
    CAPTURE(from);
    CAPTURE(to);
    CHECK((find_link(model.costs, device(from), device(to)) != nullptr) == meets);
  }
}

TEST_CASE("stage costs: an all-reduce's link that is not there is an error like any other") {
  ir::Cluster cluster = uniform_cluster(2, {});
  cluster.default_link.reset();
  const auto bad = stage_costs(branchy(),
                               {.layers_per_stage = {4},
                                .batch_size = 8,
                                .micro_batches = 1,
                                .placement = {{DeviceId{0}, DeviceId{1}}}},
                               cluster);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().diagnostics.size() == 2);
  CHECK(bad.error().to_string().find("tensors or gradients") != std::string::npos);
}

TEST_CASE("stage costs: an uneven cut is counted stage by stage, not on average (field case E3)") {
  ir::Profile profile;
  profile.samples = 1;
  for (std::uint32_t l = 0; l < 8; ++l) {
    profile.layers.push_back({.name = std::to_string(l), .parameter_bytes = 100});
    if (l > 0) {
      profile.edges.push_back({l - 1, l});
    }
  }
  const StagedModel model =
      model_of(profile, {.layers_per_stage = {1, 2, 2, 3}, .batch_size = 1, .micro_batches = 1},
               uniform_cluster(4, {}));
  std::vector<ir::Bytes> bytes;
  for (const StageCosts& stage : model.costs.stages) {
    bytes.push_back(stage.parameter_bytes);
  }
  CHECK(bytes == std::vector<ir::Bytes>{100, 200, 200, 300});
}

TEST_CASE("stage costs: a tensor that skips stages is sent once to each that uses it") {
  // a -> b -> c -> d one a stage, and a -> c, a -> d: stage 0 sends a to 1, 2 and 3.
  const StagedModel model =
      model_of(branchy(), {.layers_per_stage = {1, 1, 1, 1}, .batch_size = 8, .micro_batches = 1},
               uniform_cluster(4, {}));
  const ir::Bytes a = branchy().layers[0].output_bytes;
  const ir::Bytes b = branchy().layers[1].output_bytes;
  const ir::Bytes c = branchy().layers[2].output_bytes;
  CHECK(model.graph.links == std::vector<StageLink>{{StageId{0}, StageId{1}, a},
                                                    {StageId{0}, StageId{2}, a},
                                                    {StageId{0}, StageId{3}, a},
                                                    {StageId{1}, StageId{2}, b},
                                                    {StageId{2}, StageId{3}, c}});
}

}  // namespace
}  // namespace xpipe::scheduler
