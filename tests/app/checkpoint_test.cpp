// Checkpoints from the outside: a run that is stopped, killed or out of disk goes on from the last
// one, and says in a line what is wrong where it cannot.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> small_run(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"train",
                                      "--policy",
                                      "xpipe",
                                      "--model",
                                      "mlp",
                                      "--data",
                                      in_tree("examples/data/digits"),
                                      "--set",
                                      "hidden=8",
                                      "--batch-size",
                                      "500",
                                      "--stages",
                                      "2",
                                      "--micro-batches",
                                      "2",
                                      "--seed",
                                      "3"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<Json> mini_batches(const std::string& path) {
  std::vector<Json> records = timeless(path);
  std::erase_if(records, [](const Json& record) { return record["kind"] != "mini_batch"; });
  return records;
}

TEST_CASE(
    "xpipe train: a run resumed from its checkpoint prints what one that never stopped does") {
  const ScratchFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    const Answer answer = run_xpipe(small_run(more));
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return answer;
  };
  const Answer whole = run({"--epochs", "3", "--checkpoint", folder.path("whole"), "--metrics",
                            folder.path("m"), "--json"});
  run({"--epochs", "2", "--checkpoint", folder.path("c")});
  const Answer rest =
      run({"--epochs", "3", "--resume", folder.path("c"), "--metrics", folder.path("n"), "--json"});
  CHECK(Json::parse(rest.out)["weights_hash"] == Json::parse(whole.out)["weights_hash"]);
  std::vector<Json> expected = mini_batches(folder.path("m"));
  expected.erase(expected.begin(), expected.begin() + 16);
  CHECK(mini_batches(folder.path("n")) == expected);
  CHECK(run_xpipe(small_run({"--epochs", "3", "--resume", folder.path("c")})).status == 2);
}

TEST_CASE("xpipe train: signals and kills leave a checkpoint that the next run goes on from") {
  const ScratchFolder folder;
  const std::string place = folder.path("c");
  std::vector<std::string> more = {"--epochs",           "100000", "--checkpoint", place,
                                   "--checkpoint-every", "1"};
  for (const int signal : {SIGINT, SIGKILL, SIGTERM, SIGKILL, SIGKILL}) {
    // The first line of an epoch has come: there are checkpoints, and one is being written.
    const Answer answer = run_xpipe_and_signal(small_run(more), " %", signal);
    CHECK(answer.status == 128 + signal);
    if (more[2] == "--resume") {
      CHECK_MESSAGE(answer.out.find("going on from " + place) != std::string::npos, answer.out);
    }
    more[2] = "--resume";
  }
}

TEST_CASE("xpipe train: what cannot be resumed or written has its exit status, and loses nothing") {
  const ScratchFolder folder;
  const std::string place = folder.path("c");
  REQUIRE(run_xpipe(small_run({"--checkpoint", place, "--checkpoint-every", "3"})).status == 0);
  const std::vector<std::string> before = {"mini-batch-000000003", "mini-batch-000000006",
                                           "mini-batch-000000008"};
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(place)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  CHECK(names() == before);

  struct Case {
    std::vector<std::string> more;
    int status;
    std::string said;
  };

  const std::vector<Case> cases = {
      {{"--checkpoint", place}, 2, "--resume " + place},
      {{"--resume", place}, 2, "--epochs"},
      {{"--resume", folder.path("none")}, 3, folder.path("none")},
      {{"--resume", place, "--epochs", "2", "--lr", "0.5"}, 3, "lr is 0.001 in the checkpoint"},
      {{"--resume", place, "--epochs", "2", "--set", "depth=3"}, 3, "model.depth"},
      {{"--resume", place, "--checkpoint-every", "0"}, 2, "--checkpoint-every"},
      {{"--checkpoint-every", "3"}, 2, "--checkpoint"},
      {{"--force"}, 2, "--force"},
      {{"--checkpoint", place + "/mini-batch-000000003/manifest.json"}, 2, "manifest.json"},
      {{"--export", folder.path("none") + "/w.pt"}, 2, "w.pt"},
      {{"--lr-schedule", "step"}, 2, "--lr-step-every"},
      {{"--lr-gamma", "0.5"}, 2, "--lr-gamma"},
      {{"--lr-schedule", "cosine", "--warm-up", "8"}, 2, "--warm-up"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.said);
    const Answer answer = run_xpipe(small_run(c.more));
    CHECK(answer.status == c.status);
    CHECK(answer.out.empty());
    CHECK_MESSAGE(answer.err.find(c.said) != std::string::npos, answer.err);
    CHECK(names() == before);
  }

  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small = {4096, limit.rlim_max};  // what a disk that is full does
  setrlimit(RLIMIT_FSIZE, &small);
  const Answer full = run_xpipe(small_run({"--resume", place, "--epochs", "2"}));
  setrlimit(RLIMIT_FSIZE, &limit);
  CHECK(full.status == 5);
  CHECK_MESSAGE(full.err.find("checkpoint-not-written") != std::string::npos, full.err);
  CHECK(names() == before);

  fs::resize_file(place + "/mini-batch-000000008/layer-001.pt", 100);
  const Answer damaged = run_xpipe(small_run({"--resume", place, "--epochs", "2"}));
  CHECK(damaged.status == 3);
  CHECK(damaged.out.empty());
  CHECK_MESSAGE(
      damaged.err.find("--resume " + place + "/mini-batch-000000006") != std::string::npos,
      damaged.err);
}

TEST_CASE("xpipe train: batch norms with micro-batches are told of once (C5)") {
  // resnet50 for 28x28 digits would train for minutes: the epochs are interrupted.
  const Answer answer = run_xpipe_and_signal({"train", "--policy", "gpipe", "--model", "resnet50",
                                              "--data", in_tree("examples/data/digits"), "--stages",
                                              "2", "--micro-batches", "2", "--batch-size", "4"},
                                             "samples/s\n", SIGINT);
  CHECK(answer.status == 130);
  const std::size_t first = answer.err.find("BatchNorm");
  REQUIRE_MESSAGE(first != std::string::npos, answer.err);
  CHECK(answer.err.find("micro-batch") != std::string::npos);
  CHECK(answer.err.find("BatchNorm", first + 1) == std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
