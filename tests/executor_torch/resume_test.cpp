// Stop and resume is invisible: losses, epochs and weights go on to the last bit, for every policy,
// with dropout, batch norm, momentum and a schedule of rates; and what goes wrong loses nothing.
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/torch/checkpoint.h"
#include "executor/torch/checkpoint_plan.h"
#include "ir/files.h"
#include "tests/executor_torch/small_training.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;
using nn::OptimizerConfig;
using nn::OptimizerKind;
using nn::TrainResult;

TrainResult trained_to_end(const std::string& policy, const nn::TrainConfig& config) {
  ir::Result<TrainResult> result = train_small(policy, config);
  REQUIRE_MESSAGE(result.ok(), result.error().to_string());
  return std::move(result.value());
}

/// Trains until the forwards of mini-batch `at` of epoch 0 are through, and is interrupted.
void train_until(const std::string& policy, const nn::TrainConfig& config, std::uint32_t at) {
  std::atomic<bool> interrupted = false;
  nn::TrainCallbacks callbacks;
  callbacks.interrupted = &interrupted;
  callbacks.on_mini_batch = [&](const nn::MiniBatchRecord& record) {
    interrupted = interrupted || record.mini_batch == at;
  };
  const ir::Result<TrainResult> result = train_small(policy, config, callbacks);
  REQUIRE_FALSE(result.ok());
  REQUIRE(result.error().kind == ir::ErrorKind::Interrupted);
}

struct ResumeCase {
  std::string policy;
  OptimizerConfig optimizer;
};

const std::vector<ResumeCase> kCases{
    {"gpipe", {.kind = OptimizerKind::Sgd, .learning_rate = 0.05, .momentum = 0.9}},
    {"gpipe", {.kind = OptimizerKind::AdamW, .learning_rate = 0.01, .weight_decay = 0.1}},
    {"pipedream", {.kind = OptimizerKind::Sgd, .learning_rate = 0.05, .momentum = 0.9}},
    {"xpipe", {.kind = OptimizerKind::Adam, .learning_rate = 0.01}},
    {"xpipe", {.kind = OptimizerKind::Sgd, .learning_rate = 0.05}},      // keeps last gradients
    {"xpipe", {.kind = OptimizerKind::RmsProp, .learning_rate = 0.01}},  // likewise
    {"spectrain", {.kind = OptimizerKind::Sgd, .learning_rate = 0.05, .momentum = 0.9}},
    {"spectrain", {.kind = OptimizerKind::Adam, .learning_rate = 0.01}},  // a moving average
};

TEST_CASE("resume: losses, epochs and weights go on bit for bit, within an epoch and between two") {
  for (const ResumeCase& one : kCases) {
    for (const char* every : {"5", "1epoch"}) {
      CAPTURE(one.policy);
      CAPTURE(nn::optimizer_name(one.optimizer.kind));
      CAPTURE(every);
      const ScratchFolder scratch;
      nn::TrainConfig config = small_config(one.policy, 4);
      const nn::LearningRateSchedule rates = config.optimizer.schedule;
      config.optimizer = one.optimizer;
      config.optimizer.schedule = rates;
      REQUIRE(nn::parse_checkpoint_every(every, config.checkpoint));
      config.checkpoint.folder = scratch.path("whole");
      const TrainResult whole = trained_to_end(one.policy, config);
      REQUIRE(whole.mini_batches.size() == 16);
      config.checkpoint.folder = scratch.path("parts");
      if (std::string(every) == "5") {
        train_until(one.policy, config, 7);  // the checkpoint after mini-batch 5 is the last
      } else {
        nn::TrainConfig first = config;
        first.epochs = 1;
        trained_to_end(one.policy, first);
      }
      nn::TrainConfig rest = config;
      rest.checkpoint = {};  // interval and folder as they were
      rest.checkpoint.resume = scratch.path("parts");
      const TrainResult resumed = trained_to_end(one.policy, rest);
      const std::size_t skipped = std::string(every) == "5" ? 5 : 8;
      REQUIRE(resumed.mini_batches.size() == 16 - skipped);
      for (std::size_t i = skipped; i < 16; ++i) {
        const nn::MiniBatchRecord& record = resumed.mini_batches[i - skipped];
        CHECK(record.mini_batch == whole.mini_batches[i].mini_batch);
        CHECK(record.epoch == whole.mini_batches[i].epoch);
        CHECK(record.loss == whole.mini_batches[i].loss);
      }
      CHECK(resumed.weights_hash == whole.weights_hash);
      CHECK(resumed.epochs.back().train_loss == whole.epochs.back().train_loss);
      CHECK(resumed.epochs.front().train_loss ==
            whole.epochs[whole.epochs.size() - resumed.epochs.size()].train_loss);
      CHECK(resumed.epochs.back().test_loss == whole.epochs.back().test_loss);
    }
  }
}

TEST_CASE("resume: without what a checkpoint holds beside the weights the training differs") {
  // The control of the test above: each of these is needed.
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("xpipe", 4);
  config.checkpoint.every_mini_batches = 5;
  config.checkpoint.folder = scratch.path("whole");
  const TrainResult whole = trained_to_end("xpipe", config);
  config.checkpoint.folder = scratch.path("parts");
  train_until("xpipe", config, 7);
  config.checkpoint.resume = scratch.path("parts");
  const std::string checkpoint = nn::find_checkpoint(scratch.path("parts")).value();
  const nn::CheckpointManifest manifest = nn::read_manifest(checkpoint).value();
  for (const char* without : {"optimizer/", "buffer/", "steps"}) {
    CAPTURE(without);
    nn::CheckpointManifest changed = manifest;
    const std::string copy = scratch.path(std::string("without-") + without[0]);
    fs::create_directory(copy);
    fs::copy(checkpoint, copy + "/mini-batch-000000005", fs::copy_options::recursive);
    if (std::string(without) == "steps") {
      changed.steps = 0;
    } else {
      for (nn::LayerFile& layer : changed.layers) {
        const std::string bytes = nn::read_layer_file(checkpoint, layer).value();
        nn::NamedTensors tensors = nn::tensors_from_bytes(bytes, "").value();
        for (auto& [name, tensor] : tensors) {
          if (name.starts_with(without)) {
            tensor = torch::zeros_like(tensor);
          }
        }
        const std::string zeroed = nn::tensors_to_bytes(tensors, "").value();
        layer.bytes = static_cast<ir::Bytes>(zeroed.size());
        layer.checksum = nn::fnv1a(zeroed);
        REQUIRE(ir::write_file(copy + "/mini-batch-000000005/" + layer.file, zeroed).ok());
      }
    }
    REQUIRE(
        ir::write_file(copy + "/mini-batch-000000005/manifest.json", nn::manifest_to_json(changed))
            .ok());
    config.checkpoint.resume = copy;
    config.checkpoint.folder = copy;
    const TrainResult resumed = trained_to_end("xpipe", config);
    // Running statistics play no part in training: the test loss tells.
    CHECK(resumed.epochs.back().test_loss != whole.epochs.back().test_loss);
  }
}

TEST_CASE("resume: on other stages, and by another policy") {
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("gpipe", 4);
  config.checkpoint.every_mini_batches = 5;
  config.checkpoint.folder = scratch.path("whole");
  const TrainResult whole = trained_to_end("gpipe", config);
  config.checkpoint.folder = scratch.path("parts");
  train_until("gpipe", config, 7);
  nn::TrainConfig two = small_config("gpipe", 2);
  two.checkpoint.resume = scratch.path("parts");
  two.checkpoint.folder = scratch.path("two");
  const TrainResult resumed = trained_to_end("gpipe", two);
  CHECK(resumed.weights_hash == whole.weights_hash);  // a synchronous training knows no stages
  for (const char* policy : {"xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    nn::TrainConfig other = small_config(policy, 2);
    other.checkpoint.resume = scratch.path("parts");
    other.checkpoint.folder = scratch.path(policy);
    const TrainResult went_on = trained_to_end(policy, other);
    CHECK(went_on.mini_batches.size() == 11);
    CHECK(went_on.mini_batches.front().loss < 3.0);
  }
}

std::string text_of(const ir::Result<TrainResult>& result, ir::ErrorKind kind) {
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().kind == kind);
  return result.error().to_string();
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("resume: other settings are refused by name, and passed over by --force where they can") {
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("gpipe", 4);
  config.checkpoint.folder = scratch.path("c");
  config.epochs = 1;
  trained_to_end("gpipe", config);
  config.epochs = 2;
  const std::string refusal = text_of(train_small("gpipe", config), ir::ErrorKind::Usage);
  CHECK_MESSAGE(holds(refusal, "--resume " + scratch.path("c")), refusal);
  config.checkpoint.resume = scratch.path("c");
  config.seed = 2;
  config.optimizer.learning_rate = 0.025;
  const std::string other = text_of(train_small("gpipe", config), ir::ErrorKind::BadInput);
  CHECK_MESSAGE(holds(other, "seed is 1 in the checkpoint, 2 in this run"), other);
  CHECK_MESSAGE(holds(other, "lr is 0.05 in the checkpoint, 0.025 in this run"), other);
  config.checkpoint.force = true;
  CHECK(train_small("gpipe", config).ok());
  config.optimizer.kind = OptimizerKind::Adam;
  config.optimizer.momentum = 0.0;
  config.epochs = 3;
  CHECK(holds(text_of(train_small("gpipe", config), ir::ErrorKind::BadInput), "optimizer is sgd"));
  config = small_config("gpipe", 4);
  config.checkpoint.resume = scratch.path("c");
  config.checkpoint.force = true;
  CHECK(holds(text_of(train_small("gpipe", config), ir::ErrorKind::Usage), "--epochs"));
}

TEST_CASE("resume: a damaged checkpoint is refused, and the one before it goes on") {
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("gpipe", 4);
  config.checkpoint.every_mini_batches = 3;
  config.checkpoint.folder = scratch.path("c");
  train_until("gpipe", config, 7);  // checkpoints after 3 and 6
  const std::string layer = scratch.path("c") + "/mini-batch-000000006/layer-002.pt";
  std::string bytes = ir::read_file(layer).value();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  REQUIRE(ir::write_file(layer, bytes).ok());
  config.checkpoint.folder.clear();
  config.checkpoint.resume = scratch.path("c");
  const std::string text = text_of(train_small("gpipe", config), ir::ErrorKind::BadInput);
  CHECK_MESSAGE(holds(text, layer), text);
  CHECK_MESSAGE(holds(text, "--resume " + scratch.path("c") + "/mini-batch-000000003"), text);
  config.checkpoint.resume = scratch.path("c") + "/mini-batch-000000003";
  trained_to_end("gpipe", config);
  config.epochs = 3;
  config.checkpoint.resume = scratch.path("c");  // the damaged one has been replaced
  trained_to_end("gpipe", config);
}

TEST_CASE("a checkpoint that cannot be written ends the run, and those before it stay") {
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("gpipe", 4);
  config.checkpoint.every_mini_batches = 2;
  config.checkpoint.folder = scratch.path("c");
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  nn::TrainCallbacks callbacks;
  callbacks.on_mini_batch = [&](const nn::MiniBatchRecord& record) {
    if (record.mini_batch == 4) {
      const rlimit small = {1000, before.rlim_max};  // a disk that is full
      setrlimit(RLIMIT_FSIZE, &small);
    }
  };
  const ir::Result<TrainResult> result = train_small("gpipe", config, callbacks);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_action);
  const std::string text = text_of(result, ir::ErrorKind::Runtime);
  CHECK_MESSAGE(holds(text, "checkpoint-not-written"), text);
  CHECK(nn::checkpoints_in(scratch.path("c")) ==
        std::vector<std::string>{"mini-batch-000000002", "mini-batch-000000004"});
  CHECK_FALSE(fs::exists(scratch.path("c") + "/.new-mini-batch-000000006"));
  config.checkpoint.resume = scratch.path("c");
  CHECK(trained_to_end("gpipe", config).mini_batches.size() == 12);
}

TEST_CASE("a training killed at any moment leaves checkpoints that all load") {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("c");
  nn::TrainConfig config = small_config("gpipe", 2);
  config.epochs = 1000000;
  config.optimizer.schedule = {};
  config.checkpoint.every_mini_batches = 1;
  config.checkpoint.folder = folder;
  std::mt19937 random(5);
  for (int kill = 0; kill < 50; ++kill) {
    if (!nn::checkpoints_in(folder).empty()) {
      config.checkpoint.resume = folder;
    }
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      static_cast<void>(train_small("gpipe", config));
      _exit(9);  // it trains for hours
    }
    for (int waited = 0; kill == 0 && waited < 6000 && nn::checkpoints_in(folder).empty();
         ++waited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const std::vector<std::string> names = nn::checkpoints_in(folder);
    REQUIRE_FALSE(names.empty());
    for (const std::string& name : names) {
      const std::string checkpoint = folder + "/" + name;
      const auto manifest = nn::read_manifest(checkpoint);
      REQUIRE_MESSAGE(manifest.ok(), manifest.error().to_string());
      REQUIRE(manifest.value().layers.size() == 4);
      for (const nn::LayerFile& layer : manifest.value().layers) {
        const auto bytes = nn::read_layer_file(checkpoint, layer);
        REQUIRE_MESSAGE(bytes.ok(), bytes.error().to_string());
        CHECK(nn::tensors_from_bytes(bytes.value(), layer.file).ok());
      }
    }
  }
}

TEST_CASE("exports: every weight and buffer by layer and name, read back equal") {
  const ScratchFolder scratch;
  nn::TrainConfig config = small_config("gpipe", 2);
  config.epochs = 1;
  config.checkpoint.export_file = scratch.path("weights.pt");
  config.checkpoint.folder = scratch.path("c");
  trained_to_end("gpipe", config);
  const std::string bytes = ir::read_file(scratch.path("weights.pt")).value();
  CHECK(bytes.starts_with("PK"));  // the archive that torch.save writes
  const nn::NamedTensors exported = nn::tensors_from_bytes(bytes, "").value();
  CHECK(exported.size() == 4 * 2 + 5);
  REQUIRE(exported.contains("layer2.1.running_mean"));
  const std::string checkpoint = nn::find_checkpoint(scratch.path("c")).value();
  const nn::CheckpointManifest manifest = nn::read_manifest(checkpoint).value();
  for (const nn::LayerFile& layer : manifest.layers) {
    const nn::NamedTensors kept =
        nn::tensors_from_bytes(nn::read_layer_file(checkpoint, layer).value(), "").value();
    CHECK(torch::equal(kept.at("parameter/0.weight"), exported.at(layer.layer + ".0.weight")));
  }
}

}  // namespace
}  // namespace xpipe::tests
