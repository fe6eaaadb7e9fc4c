// The folder of checkpoints: what is written is read back, whole or not at all, and what is damaged
// is told with its place and the way out. No tensors here.
#include "executor/torch/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "executor/torch/checkpoint_plan.h"
#include "ir/files.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/scratch_folder.h"

namespace xpipe::tests {
namespace {

namespace fs = std::filesystem;
namespace nn = executor::nn;
using nn::CheckpointFolder;
using nn::CheckpointManifest;

CheckpointManifest manifest_at(std::uint64_t mini_batches) {
  CheckpointManifest manifest;
  manifest.position = {.epoch = 2, .mini_batch = 3};
  manifest.mini_batches = mini_batches;
  manifest.steps = mini_batches;
  manifest.epoch = {.samples = 24, .loss = 1.0 / 3.0, .accuracy = 7.0, .train_time = 12345};
  manifest.fixed = {{"model", "mlp"}, {"seed", "3"}};
  manifest.free = {{"policy", "xpipe"}};
  return manifest;
}

CheckpointFolder opened(const std::string& path, std::uint32_t keep) {
  ir::Result<CheckpointFolder> folder = CheckpointFolder::open(path, keep);
  REQUIRE_MESSAGE(folder.ok(), folder.error().to_string());
  return std::move(folder.value());
}

/// A checkpoint of two layers.
void write(CheckpointFolder& folder, std::uint64_t mini_batches) {
  const ir::Result<std::string> begun = folder.begin(mini_batches);
  REQUIRE(begun.ok());
  CheckpointManifest manifest = manifest_at(mini_batches);
  for (const char* layer : {"a", "b"}) {
    const auto file = CheckpointFolder::write_layer(begun.value(), manifest.layers.size(), layer,
                                                    std::string("bytes of ") + layer);
    REQUIRE(file.ok());
    manifest.layers.push_back(file.value());
  }
  const ir::Status status = folder.commit(begun.value(), manifest);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
}

std::vector<std::string> all_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST_CASE("manifests: text and back, numbers to the last bit, infinities too") {
  for (const double loss : {1.0 / 3.0, 1e-300, std::numeric_limits<double>::infinity()}) {
    CheckpointManifest manifest = manifest_at(54);
    manifest.epoch.loss = loss;
    manifest.layers = {{.layer = "a\"b", .file = "layer-000.pt", .bytes = 9, .checksum = ~0ULL}};
    const auto read = nn::manifest_from_json(nn::manifest_to_json(manifest), "m");
    REQUIRE_MESSAGE(read.ok(), read.error().to_string());
    CHECK(read.value() == manifest);
  }
}

TEST_CASE("manifests: any byte that is changed, added or lost is noticed") {
  CheckpointManifest manifest = manifest_at(54);
  manifest.layers = {{.layer = "a", .file = "layer-000.pt", .bytes = 9, .checksum = 77}};
  const std::string text = nn::manifest_to_json(manifest);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK_FALSE(nn::manifest_from_json(changed, "m").ok());
    CHECK_FALSE(nn::manifest_from_json(text.substr(0, i), "m").ok());
  }
  CHECK_FALSE(nn::manifest_from_json(text + "\n", "m").ok());
}

TEST_CASE("checkpoint names: sorted by number, whatever their length") {
  CHECK(nn::checkpoint_name(54) == "mini-batch-000000054");
  CHECK(nn::checkpoint_name(12345678901ULL) == "mini-batch-12345678901");
  const ScratchFolder scratch;
  for (const char* name : {"mini-batch-000000054", "mini-batch-12345678901", "mini-batch-000000007",
                           "mini-batch-7", "mini-batch-00000000x", ".new-mini-batch-000000099"}) {
    fs::create_directory(scratch.path(name));
  }
  CHECK(nn::checkpoints_in(scratch.path()) == std::vector<std::string>{"mini-batch-000000007",
                                                                       "mini-batch-000000054",
                                                                       "mini-batch-12345678901"});
  CHECK(nn::checkpoints_in(scratch.path("nowhere")).empty());
}

TEST_CASE("a folder keeps the last checkpoints, and each reads back") {
  const ScratchFolder scratch;
  CheckpointFolder folder = opened(scratch.path("c"), 2);
  for (const std::uint64_t at : {3U, 6U, 9U}) {
    write(folder, at);
  }
  CHECK(all_names(scratch.path("c")) ==
        std::vector<std::string>{"mini-batch-000000006", "mini-batch-000000009"});
  const auto found = nn::find_checkpoint(scratch.path("c"));
  REQUIRE(found.ok());
  CHECK(fs::path(found.value()).filename() == "mini-batch-000000009");
  const auto manifest = nn::read_manifest(found.value());
  REQUIRE_MESSAGE(manifest.ok(), manifest.error().to_string());
  REQUIRE(manifest.value().layers.size() == 2);
  CHECK(nn::read_layer_file(found.value(), manifest.value().layers[1]).value() == "bytes of b");
  CHECK(nn::find_checkpoint(found.value()).value() == found.value());
}

TEST_CASE("a damaged layer or manifest is told, with the checkpoint before it") {
  const ScratchFolder scratch;
  CheckpointFolder folder = opened(scratch.path("c"), 3);
  write(folder, 3);
  write(folder, 6);
  const std::string newest = scratch.path("c") + "/mini-batch-000000006";
  const auto manifest = nn::read_manifest(newest);
  REQUIRE(manifest.ok());
  const nn::LayerFile& layer = manifest.value().layers[0];
  const auto read_with = [&](const std::string& content) {
    REQUIRE(ir::write_file(newest + "/" + layer.file, content).ok());
    return nn::read_layer_file(newest, layer);
  };
  for (const char* content : {"bytes of A", "bytes of ", "bytes of aa", ""}) {
    const auto read = read_with(content);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().kind == ir::ErrorKind::BadInput);
    const std::string text = read.error().to_string();
    CHECK_MESSAGE(text.find("layer-000.pt") != std::string::npos, text);
    CHECK_MESSAGE(
        text.find("--resume " + scratch.path("c") + "/mini-batch-000000003") != std::string::npos,
        text);
  }
  CHECK(read_with("bytes of a").ok());
  fs::remove(newest + "/" + layer.file);
  CHECK_FALSE(nn::read_layer_file(newest, layer).ok());
  REQUIRE(ir::write_file(newest + "/manifest.json", "{}").ok());
  const auto broken = nn::read_manifest(newest);
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().to_string().find("mini-batch-000000003") != std::string::npos);
  const auto none = nn::find_checkpoint(scratch.path("empty"));
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().diagnostics.front().code == "no-checkpoint");
}

TEST_CASE("what a killed run left half written is swept, and whole checkpoints stay") {
  const ScratchFolder scratch;
  {
    CheckpointFolder folder = opened(scratch.path("c"), 3);
    write(folder, 3);
    REQUIRE(folder.begin(6).ok());
    fs::create_directory(scratch.path("c") + "/.old-mini-batch-000000001");
    fs::create_directory(scratch.path("c") + "/.mine");
  }
  opened(scratch.path("c"), 3);
  CHECK(all_names(scratch.path("c")) == std::vector<std::string>{".mine", "mini-batch-000000003"});
}

TEST_CASE("a checkpoint that is replaced by one of the same place is there all the time") {
  const ScratchFolder scratch;
  CheckpointFolder folder = opened(scratch.path("c"), 3);
  write(folder, 3);
  write(folder, 6);
  write(folder, 9);
  folder.replace_after("mini-batch-000000003");
  write(folder, 6);
  CHECK(all_names(scratch.path("c")) ==
        std::vector<std::string>{"mini-batch-000000003", "mini-batch-000000006"});
  folder.replace_after("");
  write(folder, 1);
  CHECK(all_names(scratch.path("c")) == std::vector<std::string>{"mini-batch-000000001"});
}

TEST_CASE("folders that cannot be made or written are told before the work") {
  const ScratchFolder scratch;
  REQUIRE(ir::write_file(scratch.path("file"), "x").ok());
  for (const std::string& path : {scratch.path("file"), scratch.path("file") + "/c"}) {
    const auto folder = CheckpointFolder::open(path, 3);
    REQUIRE_FALSE(folder.ok());
    CHECK(folder.error().kind == ir::ErrorKind::Usage);
    CHECK(folder.error().to_string().find(path) != std::string::npos);
  }
}

TEST_CASE("intervals of checkpoints: mini-batches or epochs, and nothing else") {
  nn::CheckpointConfig config;
  REQUIRE(nn::parse_checkpoint_every("100", config));
  CHECK(config.every_mini_batches == 100);
  CHECK(config.every_epochs == 0);
  REQUIRE(nn::parse_checkpoint_every("2epochs", config));
  CHECK(config.every_mini_batches == 0);
  CHECK(config.every_epochs == 2);
  CHECK(nn::parse_checkpoint_every("1epoch", config));
  for (const char* wrong : {"", "0", "epoch", "0epochs", "2 epochs", "-1", "01", "2epochsepoch",
                            "99999999999", "1.5"}) {
    CAPTURE(wrong);
    CHECK_FALSE(nn::parse_checkpoint_every(wrong, config));
  }
}

TEST_CASE("a checkpoint is due at its interval and at the end") {
  nn::CheckpointPlan plan;
  plan.every_mini_batches = 3;
  CHECK(nn::checkpoint_due(plan, {0, 6}, 6, 2));
  CHECK_FALSE(nn::checkpoint_due(plan, {1, 0}, 8, 2));
  CHECK(nn::checkpoint_due(plan, {2, 0}, 16, 2));
  plan = {};
  plan.every_epochs = 2;
  CHECK_FALSE(nn::checkpoint_due(plan, {1, 0}, 8, 5));
  CHECK(nn::checkpoint_due(plan, {2, 0}, 16, 5));
  CHECK_FALSE(nn::checkpoint_due(plan, {2, 4}, 20, 5));
  CHECK(nn::checkpoint_due(plan, {5, 0}, 40, 5));
}

}  // namespace
}  // namespace xpipe::tests
