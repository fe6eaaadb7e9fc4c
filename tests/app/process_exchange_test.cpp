// What stages and replicas of several processes bring together before a step: gradients of
// replicas, of a weight that two stages share, and one norm over all. The bits are those of one
// process.
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_ranks.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

/// A few mini-batches of images.
Words images(const Words& more, const char* timeout_s = "60") {
  return joined(
      train_on_digits({"--batch-size", "1000", "--micro-batches", "4", "--seed", "3"}, timeout_s),
      more);
}

/// A GPT whose token embedding, in the first stage, is the head's weight, in the last.
Words tied_text(const ScratchFolder& folder, const Words& more) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "the " + std::to_string(i) + "th line of a text, of which there are few. ";
  }
  return joined({"train",
                 "--model",
                 "gpt",
                 "--set",
                 "tie=true",
                 "--set",
                 "layers=2",
                 "--set",
                 "width=8",
                 "--set",
                 "heads=2",
                 "--set",
                 "sequence=16",
                 "--data",
                 folder.write("text.txt", text),
                 "--batch-size",
                 "40",
                 "--micro-batches",
                 "4",
                 "--seed",
                 "3",
                 "--timeout-s",
                 "60"},
                more);
}

/// `arguments` in one process and in several: the same weights and records.
void check_same(const ScratchFolder& folder,
                const Words& arguments,
                const std::vector<std::uint32_t>& worlds) {
  const std::string metrics = folder.path("alone");
  const Answer alone = run_xpipe(joined(arguments, {"--json", "--metrics", metrics}));
  REQUIRE_MESSAGE(alone.status == 0, alone.err);
  const Json expected = Json::parse(alone.out);
  for (const std::uint32_t world : worlds) {
    CAPTURE(world);
    RankedRun run(world);
    run.start_all(joined(arguments, {"--json", "--metrics", folder.path("shared")}));
    const auto answers = run.wait_all();
    for (const auto& [rank, answer] : answers) {
      CAPTURE(rank);
      REQUIRE_MESSAGE(answer.status == 0, answer.err);
    }
    const Json found = Json::parse(answers.at(0).out);
    CHECK(found["weights_hash"] == expected["weights_hash"]);
    CHECK(found["epochs"][0]["loss"] == expected["epochs"][0]["loss"]);
    CHECK(timeless(folder.path("shared")) == timeless(metrics));
  }
}

}  // namespace

TEST_CASE("processes: replicas on several ranks add up as in one process") {
  // Replicas of stage 0 on devices 0 and 2, of stage 1 on 1 and 3: two ranks have one of each.
  for (const char* policy : {"gpipe", "xpipe", "pipedream"}) {
    CAPTURE(policy);
    const ScratchFolder folder;
    check_same(folder,
               images({"--policy", policy, "--stages", "2", "--replicas", "2,2", "--placement",
                       "0,2,1,3"}),
               {2});
  }
}

TEST_CASE("processes: three replicas of the first stage and two of the last, a rank each") {
  const ScratchFolder folder;
  check_same(folder, images({"--policy", "gpipe", "--stages", "2", "--replicas", "3,2"}), {5});
}

TEST_CASE("processes: replicas on several ranks, one task after the other") {
  // Each rank has half of both sums, in another order of its devices.
  const ScratchFolder folder;
  check_same(folder,
             images({"--policy", "gpipe", "--stages", "2", "--replicas", "2,2", "--placement",
                     "0,3,1,2", "--device", "inline"}),
             {2});
}

TEST_CASE("processes: a weight that the stages of two ranks share stays one weight") {
  const ScratchFolder folder;
  check_same(folder, tied_text(folder, {"--policy", "gpipe", "--stages", "2"}), {2});
  check_same(folder,
             tied_text(folder, {"--policy", "gpipe", "--stages", "4", "--clip-norm", "0.5"}), {4});
}

TEST_CASE("processes: one norm over the stages and replicas of all ranks") {
  const ScratchFolder folder;
  check_same(folder, images({"--policy", "gpipe", "--stages", "4", "--clip-norm", "0.1"}), {2, 4});
  check_same(folder,
             images({"--policy", "gpipe", "--stages", "2", "--replicas", "2,2", "--placement",
                     "0,2,1,3", "--clip-norm", "0.1", "--accumulate", "2"}),
             {2});
  bool has_norm = false;
  for (const Json& record : timeless(folder.path("shared"))) {
    has_norm = has_norm || record.contains("gradient_norm");
  }
  CHECK(has_norm);
}

TEST_CASE("processes: a rank that is killed, or hangs, within a sum ends all and is named") {
  const Words split = {"--policy",    "gpipe",   "--stages", "2",    "--replicas",  "2,2",
                       "--placement", "0,2,1,3", "--epochs", "1000", "--clip-norm", "0.1"};
  for (const char* task : {"0ALLREDUCE1", "1CLIP1"}) {
    CAPTURE(task);
    RankedRun run(2);
    run.start_all(images(split), {{"XPIPE_TEST_FAULT", std::string("1 ") + task + " kill"}});
    const Answer first = run.wait(0);
    CHECK(run.wait(1).status == 128 + SIGKILL);
    CHECK(first.status == 5);
    CHECK_MESSAGE(first.err.starts_with("xpipe: rank 0, peer rank 1: rank 1 is gone"), first.err);
  }
  RankedRun run(2);
  run.start_all(images(split, "3"), {{"XPIPE_TEST_FAULT", "1 0ALLREDUCE1 hang"}});
  for (const auto& [rank, answer] : run.wait_all()) {
    CAPTURE(rank);
    CHECK(answer.status == 5);
    CHECK_MESSAGE(answer.err.find("time-out") != std::string::npos, answer.err);
    CHECK_MESSAGE(answer.err.find("ALLREDUCE1") != std::string::npos, answer.err);
  }
}

}  // namespace xpipe::app_test
