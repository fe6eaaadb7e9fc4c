// The trainer on real digits, the built-in models, the profiler, and the checks of what is asked.
#include "executor/torch/trainer.h"

#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "executor/cpu/cpu_backend.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/model.h"
#include "executor/torch/model_names.h"
#include "executor/torch/profiler.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using nn::TrainConfig;
using nn::Trainer;
using nn::TrainResult;

TrainConfig small_config(std::uint32_t stages) {
  TrainConfig config;
  config.model = "mlp";
  config.model_options = {{"hidden", "24"}, {"depth", "3"}};
  config.data = XPIPE_SOURCE_DIR "/examples/data/digits";
  config.stages = stages;
  config.micro_batches = 4;
  config.batch_size = 150;
  config.epochs = 2;
  config.optimizer.learning_rate = 0.005;
  config.seed = 3;
  return config;
}

Trainer created(const TrainConfig& config) {
  ir::Result<Trainer> trainer = Trainer::create(config);
  REQUIRE_MESSAGE(trainer.ok(), trainer.error().to_string());
  return std::move(trainer.value());
}

nn::ScheduleSource schedule_for(const Trainer& trainer,
                                const std::string& policy,
                                const scheduler::Passes& passes = {}) {
  return [stages = trainer.facts().stages, policy, passes](std::uint32_t micro_batches,
                                                           std::uint32_t mini_batches) {
    return compiled(policy, stages, micro_batches, mini_batches, {}, passes);
  };
}

ir::Result<TrainResult> train(Trainer& trainer,
                              const nn::ScheduleSource& source,
                              On on,
                              const nn::TrainCallbacks& callbacks = {}) {
  if (on == On::Inline) {
    executor::InlineBackend backend;
    return trainer.train(source, backend, callbacks);
  }
  const auto pool = executor::CpuPool::create(
      {.devices = trainer.facts().stages + 1,
       .on_thread_start = [](ir::DeviceId) { nn::set_intra_op_threads(1); },
       .pin_to = {}});
  REQUIRE(pool.ok());
  executor::CpuBackend backend(*pool.value());
  return trainer.train(source, backend, callbacks);
}

TEST_CASE("trainer: facts of a training, before it starts") {
  const Trainer trainer = created(small_config(2));
  const nn::TrainFacts& facts = trainer.facts();
  CHECK(facts.stages == 2);
  CHECK(facts.layers == std::vector<std::string>{"fc1", "fc2", "fc3", "fc4"});
  CHECK(facts.partition == std::vector<std::uint32_t>{1, 3});
  CHECK(facts.mini_batches == 27);  // 26 of 150 and one of 100
  CHECK(facts.dropped_samples == 0);
  CHECK(facts.train_samples == 4000);
  CHECK(facts.test_samples == 1000);
  CHECK(facts.data_kind == "mnist");
  CHECK(facts.stage_parameters ==
        std::vector<std::int64_t>{784 * 24 + 24, 2 * (24 * 24 + 24) + 24 * 10 + 10});
  REQUIRE(facts.stage_graph.links.size() == 1);
  CHECK(facts.stage_graph.links[0].bytes == 38 * 24 * 4);  // 150 in 4: 38, 38, 37, 37
}

TEST_CASE("trainer: learns the digits by every policy, and its records add up") {
  for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    Trainer trainer = created(small_config(4));
    const nn::ScheduleSource schedule = schedule_for(trainer, policy);
    std::atomic<std::uint32_t> mini_batches = 0;
    std::uint32_t epochs = 0;
    const nn::TrainCallbacks callbacks{
        .on_mini_batch = [&](const nn::MiniBatchRecord&) { ++mini_batches; },
        .on_epoch =
            [&](const nn::EpochRecord& epoch, const auto& records) {
              CHECK(epoch.epoch == epochs++);
              CHECK(records.size() == 27);
            }};
    const ir::Result<TrainResult> result = train(trainer, schedule, On::Cpu, callbacks);
    REQUIRE_MESSAGE(result.ok(), result.error().to_string());
    CHECK(mini_batches == 54);
    CHECK(epochs == 2);
    const TrainResult& got = result.value();
    CHECK(got.epochs[1].test_accuracy > 0.4);  // by chance 0.1
    CHECK(got.epochs[1].train_loss < got.epochs[0].train_loss);
    double sum = 0.0;
    for (std::size_t i = 27; i < 54; ++i) {
      const nn::MiniBatchRecord& record = got.mini_batches[i];
      CHECK(record.epoch == 1);
      CHECK(record.mini_batch == i - 27);
      CHECK(record.samples == (i == 53 ? 100 : 150));
      CHECK(record.prediction_error.empty());
      CHECK(record.ended > 0);
      CHECK(record.ended <= got.epochs[1].train_time);
      sum += record.loss * record.samples;
    }
    CHECK(got.epochs[1].train_loss == doctest::Approx(sum / 4000));
    CHECK(got.timeline_epoch == 1);
    CHECK(got.timeline.spans.size() == got.schedule.tasks.size());
    CHECK(got.probe_bytes == 0);
  }
}

TEST_CASE("trainer: one seed gives one training, on threads and inline, again and again") {
  for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    TrainConfig config = small_config(4);
    config.epochs = 1;
    Trainer trainer = created(config);
    const nn::ScheduleSource schedule = schedule_for(trainer, policy);
    const auto hash = [&](Trainer& of, On on) {
      const ir::Result<TrainResult> result = train(of, schedule, on);
      REQUIRE(result.ok());
      return std::pair(result.value().weights_hash, result.value().epochs[0].train_loss);
    };
    const auto first = hash(trainer, On::Inline);
    CHECK(hash(trainer, On::Cpu) == first);
    CHECK(hash(trainer, On::Cpu) == first);
    config.seed = 4;
    Trainer other = created(config);
    CHECK(hash(other, On::Inline) != first);
  }
}

TEST_CASE("trainer: a cut changes nothing of a synchronous training") {
  std::vector<std::uint64_t> hashes;
  for (const std::uint32_t stages : {1U, 2U, 4U}) {
    TrainConfig config = small_config(stages);
    config.epochs = 1;
    Trainer trainer = created(config);
    const ir::Result<TrainResult> result = train(trainer, schedule_for(trainer, "gpipe"), On::Cpu);
    REQUIRE(result.ok());
    hashes.push_back(result.value().weights_hash);
  }
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[0] == hashes[2]);
}

TEST_CASE("trainer: prediction errors are measured where a stage predicts, and change nothing") {
  TrainConfig config = small_config(4);
  config.epochs = 1;
  Trainer plain = created(config);
  const nn::ScheduleSource schedule = schedule_for(plain, "xpipe");
  const ir::Result<TrainResult> without = train(plain, schedule, On::Cpu);
  config.prediction_error_every = 5;
  Trainer probed = created(config);
  const ir::Result<TrainResult> result = train(probed, schedule, On::Cpu);
  REQUIRE(result.ok());
  CHECK(result.value().weights_hash == without.value().weights_hash);
  CHECK(result.value().probe_bytes > 0);
  double predicted = 0.0;
  double unpredicted = 0.0;
  for (const nn::MiniBatchRecord& record : result.value().mini_batches) {
    CAPTURE(record.mini_batch);
    if (record.mini_batch % 5 != 0) {
      CHECK(record.prediction_error.empty());
      continue;
    }
    REQUIRE(record.prediction_error.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) {
      // Every stage aims one step ahead (D = T = 4, floor), from the second mini-batch on.
      CHECK(record.prediction_error[k].has_value() == (record.mini_batch > 0 || k >= 2));
      if (record.mini_batch >= 10 && record.prediction_error[k]) {
        predicted += *record.prediction_error[k];
        unpredicted += *record.unpredicted_error[k];
        CHECK(*record.unpredicted_error[k] > 0.0);
      }
    }
  }
  CHECK(predicted > 0.0);
  CHECK(unpredicted > 0.0);
}

TEST_CASE("probe: errors are those of the weights that the step aimed at has made") {
  const auto vector = [](double a, double b) {
    return std::vector<torch::Tensor>{torch::tensor({a}), torch::tensor({b})};
  };
  nn::PredictionProbe probe;
  probe.keep(ir::MiniBatch{4}, 7, vector(3, 4.5), vector(2, 4));
  probe.keep(ir::MiniBatch{5}, 9, vector(0, 0), vector(0, 0));
  probe.stepped(6, vector(9, 9));
  probe.stepped(7, vector(3, 4));
  const std::vector<nn::PredictionError> errors = probe.take();
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].mini_batch == ir::MiniBatch{4});
  CHECK(errors[0].predicted == doctest::Approx(0.5 / 5));
  CHECK(errors[0].unpredicted == doctest::Approx(1.0 / 5));
  CHECK(probe.peak_bytes() == 2 * 2 * 2 * 8 / 2);  // two probes of two copies of two floats
}

TEST_CASE("trainer: memory is what the schedule says") {
  TrainConfig config = small_config(4);
  config.epochs = 1;
  Trainer trainer = created(config);
  const nn::ScheduleSource schedule = schedule_for(trainer, "pipedream");
  const ir::Result<TrainResult> result = train(trainer, schedule, On::Inline);
  REQUIRE(result.ok());
  for (std::size_t k = 0; k < 4; ++k) {
    const nn::StageMemory& memory = result.value().memory[k];
    CHECK(memory.weights == 4 * trainer.facts().stage_parameters[k]);
    CHECK(memory.slots == memory.weights * static_cast<ir::Bytes>(3 - k));
    CHECK(memory.optimizer == 2 * memory.weights);
    CHECK(memory.weight_storages == memory.parameters * (4 - k));
  }
}

TEST_CASE("trainer: an interruption, a loss that is no number, another's schedule") {
  TrainConfig config = small_config(2);
  Trainer trainer = created(config);
  const nn::ScheduleSource schedule = schedule_for(trainer, "xpipe");
  const std::atomic<bool> interrupted = true;
  const auto stopped = train(trainer, schedule, On::Cpu, {.interrupted = &interrupted});
  REQUIRE_FALSE(stopped.ok());
  CHECK(stopped.error().kind == ir::ErrorKind::Interrupted);

  config.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 1e30};
  Trainer wild = created(config);
  const auto burst = train(wild, schedule, On::Cpu);
  REQUIRE_FALSE(burst.ok());
  CHECK(burst.error().kind == ir::ErrorKind::Runtime);
  CHECK(burst.error().diagnostics.front().code == "loss-not-finite");

  const auto wrong = train(
      trainer, [](std::uint32_t, std::uint32_t) { return compiled("xpipe", 4, 2, 3); }, On::Inline);
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().kind == ir::ErrorKind::Usage);
  CHECK(wrong.error().diagnostics.size() == 3);  // stages, mini-batches, micro-batches
}

scheduler::Passes placed(const std::vector<std::uint32_t>& placement,
                         const std::vector<std::uint32_t>& replicas) {
  return {.layout =
              scheduler::resolve_layout({.stages = static_cast<std::uint32_t>(replicas.size()),
                                         .devices = {},
                                         .placement = placement,
                                         .replicas = replicas})
                  .value()};
}

TEST_CASE("trainer: placements and waiting sends change no bit of the weights") {
  TrainConfig config = small_config(4);
  config.epochs = 1;
  Trainer trainer = created(config);
  const auto straight = train(trainer, schedule_for(trainer, "xpipe"), On::Inline);
  REQUIRE_MESSAGE(straight.ok(), straight.error().to_string());
  scheduler::Passes passes = placed({0, 1, 1, 0}, {1, 1, 1, 1});
  passes.sends = scheduler::Sends::Rendezvous;
  const auto bent = train(trainer, schedule_for(trainer, "xpipe", passes), On::Inline);
  REQUIRE_MESSAGE(bent.ok(), bent.error().to_string());
  CHECK(bent.value().weights_hash == straight.value().weights_hash);
}

TEST_CASE("trainer: recomputing changes no bit, nor does the side that replicas run on") {
  TrainConfig config = small_config(2);
  config.epochs = 1;
  Trainer trainer = created(config);
  const auto kept = train(trainer, schedule_for(trainer, "gpipe"), On::Inline);
  REQUIRE_MESSAGE(kept.ok(), kept.error().to_string());
  for (const scheduler::Recompute mode :
       {scheduler::Recompute::Stage, scheduler::Recompute::Layer}) {
    scheduler::Passes passes;
    passes.recompute = mode;
    const auto again = train(trainer, schedule_for(trainer, "gpipe", passes), On::Cpu);
    REQUIRE_MESSAGE(again.ok(), again.error().to_string());
    CHECK(again.value().weights_hash == kept.value().weights_hash);
  }
  const nn::ScheduleSource schedule = schedule_for(trainer, "gpipe", placed({}, {2, 1}));
  const auto here = train(trainer, schedule, On::Inline);
  REQUIRE_MESSAGE(here.ok(), here.error().to_string());
  const auto there = train(trainer, schedule, On::Cpu);
  REQUIRE_MESSAGE(there.ok(), there.error().to_string());
  CHECK(here.value().weights_hash == there.value().weights_hash);
  CHECK(here.value().weights_hash != kept.value().weights_hash);  // other sums, by rank
  CHECK(here.value().epochs[0].test_loss ==
        doctest::Approx(kept.value().epochs[0].test_loss).epsilon(0.01));
}

TEST_CASE("trainer: faults of the configuration are reported, all of them") {
  TrainConfig config = small_config(2);
  config.micro_batches = 0;
  config.epochs = 0;
  config.optimizer.beta1 = 1.0;
  config.optimizer.momentum = 0.9;  // with Adam
  config.optimizer.learning_rate = std::nan("");
  const auto many = Trainer::create(config);
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().kind == ir::ErrorKind::Usage);
  CHECK(many.error().diagnostics.size() == 5);
  const auto code = [](TrainConfig wrong) {
    const auto trainer = Trainer::create(wrong);
    return trainer.ok() ? std::string("ok") : trainer.error().diagnostics.front().code;
  };
  TrainConfig wrong = small_config(5);
  CHECK(code(wrong) != "ok");  // four layers
  wrong = small_config(2);
  wrong.partition = {1, 2};
  CHECK(code(wrong) != "ok");
  wrong.partition = {1, 1, 2};
  CHECK(code(wrong) == "bad-partition");
  wrong.partition = {2, 2};
  CHECK(code(wrong) == "ok");
  wrong.model = "lenet";
  CHECK(code(wrong) == "unknown-model");
  wrong = small_config(2);
  wrong.model_options = {{"hiden", "3"}};
  CHECK(code(wrong) == "unknown-option");
  wrong.model_options = {{"hidden", "0"}};
  CHECK(code(wrong) == "bad-option");
  wrong = small_config(2);
  wrong.data = "no such folder";
  CHECK(code(wrong) == "no-folder");
  CHECK(nn::optimizer_kind_from("adamw").value() == nn::OptimizerKind::AdamW);
  CHECK(nn::optimizer_kind_from("adm").error().to_string().find("adam") != std::string::npos);
}

TEST_CASE("trainer: how predictions extrapolate is the caller's to say, never told by a name") {
  TrainConfig config;
  CHECK(nn::prediction_form(config, compiled("spectrain", 2, 1, 2)).extrapolation ==
        nn::Extrapolation::OptimizerStep);
  const ir::Schedule literal = compiled("xpipe", 2, 1, 2, {{"bias", "literal"}});
  CHECK(nn::prediction_form(config, literal).bias == nn::BiasCorrection::Literal);
  CHECK(nn::prediction_form(config, literal).extrapolation == nn::Extrapolation::OptimizerStep);
  CHECK(nn::prediction_form(config, compiled("xpipe", 2, 1, 2)).bias ==
        nn::BiasCorrection::Standard);
  const ir::Schedule slow = compiled("spectrain", 2, 1, 2, {{"gamma", "0.5"}});
  CHECK(nn::prediction_form(config, slow).gamma == 0.5);
  CHECK(nn::prediction_form(config, literal).gamma == 0.9);
  config.gamma = 0.7;
  CHECK(nn::prediction_form(config, slow).gamma == 0.7);
  config.bias = nn::BiasCorrection::Standard;
  config.extrapolation = nn::Extrapolation::SmoothedGradient;
  CHECK(nn::prediction_form(config, literal).bias == nn::BiasCorrection::Standard);
  CHECK(nn::prediction_form(config, literal).extrapolation == nn::Extrapolation::SmoothedGradient);
}

TEST_CASE("profiler: a layer a line, with bytes that arithmetic confirms") {
  nn::ProfileRequest request;
  request.model = "lenet5";
  request.channels = 1;
  request.height = 28;
  request.width = 28;
  request.samples = 5;
  request.repeats = 3;
  request.warm_up = 1;
  request.date = "2026-01-02";
  std::uint32_t rounds = 0;
  request.on_round = [&](std::uint32_t done, std::uint32_t of) {
    CHECK(done == ++rounds);
    CHECK(of == 4);
  };
  const ir::Result<nn::MeasuredProfile> result = nn::profile_model(request);
  REQUIRE_MESSAGE(result.ok(), result.error().to_string());
  const ir::Profile& profile = result.value().profile;
  CHECK(rounds == 4);
  CHECK(result.value().spreads.size() == 8);
  CHECK(profile.data_loading > 0);
  CHECK(profile.name == "lenet5");
  CHECK(profile.samples == 5);
  CHECK(profile.provenance.find("torch 2.11.0") != std::string::npos);
  CHECK(profile.provenance.find("2026-01-02") != std::string::npos);
  REQUIRE(profile.layers.size() == 8);
  CHECK(profile.edges.size() == 7);
  for (const ir::LayerProfile& layer : profile.layers) {
    CAPTURE(layer.name);
    CHECK(layer.forward > 0);
    CHECK(layer.backward_input >= 0);
    CHECK(layer.backward_weight >= 0);
    CHECK(layer.update.has_value() == (layer.parameter_bytes > 0));
    CHECK(layer.update.value_or(1) > 0);
  }
  constexpr ir::Bytes kFloat = 4;
  // The input, and the ReLU's output.
  CHECK(profile.layers[0].saved_bytes == 5 * kFloat * (784 + 6 * 784));
  // What the pooling chose (int64); its input was counted with the ReLU.
  CHECK(profile.layers[1].saved_bytes == 5 * 8 * 6 * 196);
  CHECK(profile.layers[0].output_bytes == 5 * kFloat * 6 * 784);
  CHECK(profile.layers[0].parameter_bytes == kFloat * 156);
  CHECK(profile.layers[4].saved_bytes == 0);     // flatten
  CHECK(profile.layers[0].backward_input == 0);  // nobody asks for the image's gradient
  request.repeats = 0;
  CHECK_FALSE(nn::profile_model(request).ok());
}

}  // namespace
}  // namespace xpipe::tests
