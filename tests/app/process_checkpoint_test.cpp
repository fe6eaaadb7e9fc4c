// Checkpoints, exports and the trained model of several processes: rank 0 has the files, the bits
// are those of one process, and however a run ends the last checkpoint is whole.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "tests/app/run_ranks.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Words small_run(const Words& more, const std::string& policy = "xpipe") {
  return joined(train_on_digits({"--policy", policy, "--batch-size", "500", "--stages", "4",
                                 "--set", "depth=3", "--micro-batches", "2", "--seed", "3"}),
                more);
}

/// The document of `world` processes, or of one.
Json run(std::uint32_t world, Words words) {
  words.emplace_back("--json");
  if (world == 1) {
    const Answer answer = run_xpipe(words);
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return Json::parse(answer.out);
  }
  RankedRun ranks(world);
  ranks.start_all(words);
  const auto answers = ranks.wait_all();
  for (const auto& [rank, answer] : answers) {
    CAPTURE(rank);
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
  }
  return Json::parse(answers.at(0).out);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code changes;  // they may while this looks
  for (fs::directory_iterator entry(folder, changes), end; !changes && entry != end;
       entry.increment(changes)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_new(const std::string& name) {
  return name.starts_with(".new-");
}

std::vector<std::string> whole_ones_in(const std::string& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, is_new);
  return names;
}

/// Some layers of a checkpoint are there, not all.
bool is_half_written(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto begun = std::ranges::find_if(names, is_new);
  std::error_code gone;
  const fs::path of = fs::path(folder) / (begun == names.end() ? "none" : *begun);
  return fs::exists(of / "layer-000.pt", gone) && !fs::exists(of / "manifest.json", gone);
}

}  // namespace

TEST_CASE("processes: 2 ranks write, 1 and 4 go on, and the reverse, bit for bit") {
  struct Course {
    std::uint32_t first;
    std::uint32_t then;
    const char* policy;
  };

  for (const Course& course :
       {Course{2, 1, "xpipe"}, Course{1, 2, "spectrain"}, Course{2, 4, "pipedream"}}) {
    CAPTURE(course.first);
    CAPTURE(course.then);
    const ScratchFolder folder;
    const auto command = [&](const Words& more) { return small_run(more, course.policy); };
    const Json whole = run(1, command({"--epochs", "2", "--checkpoint", folder.path("whole"),
                                       "--checkpoint-every", "3"}));
    run(course.first,
        command({"--epochs", "1", "--checkpoint", folder.path("c"), "--checkpoint-every", "3"}));
    const Json rest = run(course.then, command({"--epochs", "2", "--resume", folder.path("c"),
                                                "--metrics", folder.path("m")}));
    CHECK(rest["weights_hash"] == whole["weights_hash"]);
    CHECK(rest["epochs"].back()["loss"] == whole["epochs"].back()["loss"]);
    CHECK(names_in(folder.path("c")).back() == names_in(folder.path("whole")).back());
  }
}

TEST_CASE("processes: replicas on several ranks write and load checkpoints, too") {
  const ScratchFolder folder;
  const auto command = [&](const Words& more) {
    Words words = {"train",
                   "--policy",
                   "gpipe",
                   "--model",
                   "lenet5",
                   "--data",
                   in_tree("examples/data/digits"),
                   "--batch-size",
                   "1000",
                   "--stages",
                   "2",
                   "--replicas",
                   "2,2",
                   "--placement",
                   "0,2,1,3",
                   "--seed",
                   "3",
                   "--micro-batches",
                   "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Json whole = run(1, command({"--epochs", "2", "--checkpoint", folder.path("whole")}));
  run(2, command({"--epochs", "1", "--checkpoint", folder.path("c")}));
  const Json rest = run(2, command({"--epochs", "2", "--resume", folder.path("c")}));
  CHECK(rest["weights_hash"] == whole["weights_hash"]);
}

TEST_CASE("processes: files of an export, and of a model that was saved, are those of one") {
  const ScratchFolder folder;
  const auto export_of = [&](std::uint32_t world, const std::string& name) {
    run(world, small_run({"--export", folder.path(name)}));
    return read_all(folder.path(name));
  };
  const std::string alone = export_of(1, "alone.pt");
  CHECK(!alone.empty());
  CHECK(export_of(4, "shared.pt") == alone);
  const auto save = [&](std::uint32_t world, const std::string& name) {
    run(world, {"train", "--policy", "gpipe", "--model", in_tree("examples/models/small_cnn.pt"),
                "--save-model", folder.path(name), "--data", in_tree("examples/data/digits"),
                "--batch-size", "2000", "--stages", "2", "--micro-batches", "2"});
    return read_all(folder.path(name));
  };
  CHECK(save(2, "two.pt") == save(1, "one.pt"));
}

TEST_CASE("processes: whichever rank is killed during a write, the last checkpoint is whole") {
  const ScratchFolder folder;
  const std::string place = folder.path("c");
  Words more = {"--epochs", "100000", "--checkpoint", place, "--checkpoint-every", "1"};
  for (const std::uint32_t killed : {1U, 0U, 1U, 0U}) {
    CAPTURE(killed);
    RankedRun ranks(2);
    ranks.start_all(small_run(more));
    ranks.wait_for(0, " %");  // an epoch: there are checkpoints
    ranks.stop_when(0, [&place] { return is_half_written(place); });
    const std::vector<std::string> whole = whole_ones_in(place);
    CHECK(!whole.empty());
    ranks.signal(killed, SIGKILL);
    ranks.signal(0, SIGCONT);
    const Answer other = ranks.wait(1 - killed);
    CHECK(other.status == 5);
    CHECK_MESSAGE(
        other.err.find("rank " + std::to_string(killed) + " is gone") != std::string::npos,
        other.err);
    CHECK(ranks.wait(killed).status == 128 + SIGKILL);
    CHECK(whole_ones_in(place) == whole);
    more[2] = "--resume";
  }
  // One process goes on from what two have left.
  const Answer answer = run_xpipe_and_signal(small_run(more), " %", SIGINT);
  CHECK(answer.status == 130);
  CHECK_MESSAGE(answer.out.find("going on from " + place) != std::string::npos, answer.out);
  CHECK(names_in(place) == whole_ones_in(place));
}

TEST_CASE("processes: a full disk of rank 0 ends all, and the checkpoints before it stay") {
  const ScratchFolder folder;
  const std::string place = folder.path("c");
  run(2, small_run({"--checkpoint", place, "--checkpoint-every", "3"}));
  const std::vector<std::string> before = names_in(place);
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small = {4096, limit.rlim_max};
  RankedRun ranks(2);
  setrlimit(RLIMIT_FSIZE, &small);
  ranks.start(0, small_run({"--resume", place, "--epochs", "2"}));
  setrlimit(RLIMIT_FSIZE, &limit);
  ranks.start(1, small_run({"--resume", place, "--epochs", "2"}));
  for (const auto& [rank, answer] : ranks.wait_all()) {
    CAPTURE(rank);
    CHECK(answer.status == 5);
    CHECK_MESSAGE(answer.err.starts_with("xpipe: rank 0, "), answer.err);
    CHECK_MESSAGE(answer.err.find("checkpoint-not-written") != std::string::npos, answer.err);
  }
  CHECK(names_in(place) == before);
}

}  // namespace xpipe::app_test
