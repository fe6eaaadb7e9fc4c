// `xpipe train --device emulated` from the outside; it needs no LibTorch.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

/// `command`, then the same pipeline of short tasks.
std::vector<std::string> with_pipeline(std::vector<std::string> command,
                                       const std::vector<std::string>& more) {
  for (const char* word :
       {"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--mini-batches", "3",
        "--forward-us", "300", "--backward-us", "500", "--latency-us", "40"}) {
    command.emplace_back(word);
  }
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<std::string> emulate(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"train", "--device", "emulated"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST_CASE("xpipe train --device emulated: the run's trace is valid and compares with the plan") {
  const ScratchFolder folder;
  const std::string plan = folder.path("plan.json");
  const std::string run = folder.path("run.json");
  REQUIRE(run_xpipe(with_pipeline({"simulate"}, {"--trace", plan})).status == 0);
  const Answer ran = run_xpipe(with_pipeline(emulate({}), {"--trace", run}));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(ran.out.find("xpipe, 3 stages, T = 2, 3 mini-batches") != std::string::npos);
  CHECK(run_xpipe({"check", run}).status == 0);
  const Answer compared = run_xpipe({"compare", plan, run, "--json"});
  REQUIRE_MESSAGE(compared.status == 0, compared.err);
  CHECK(compared.err.empty());  // the first is a plan, the second a run
  CHECK(Json::parse(compared.out)["makespan_ratio"].get<double>() >= 1.0);
}

TEST_CASE("xpipe train --device emulated: --json gives the plan's figures and the measured time") {
  const Json simulated = Json::parse(run_xpipe(with_pipeline({"simulate"}, {"--json"})).out);
  const Json ran = Json::parse(run_xpipe(with_pipeline(emulate({}), {"--json"})).out);
  CHECK(ran["format"] == "xpipe.emulation");
  CHECK(ran["planned_ns"] == simulated["runs"][0]["makespan_ns"]);
  CHECK(ran["measured_ns"] >= ran["planned_ns"]);
  CHECK(ran["policy"] == "xpipe");
}

TEST_CASE("xpipe train --device emulated: a schedule from a file is run") {
  const ScratchFolder folder;
  const std::string file = folder.path("s.tasks");
  REQUIRE(run_xpipe({"schedule", "--policy", "gpipe", "--stages", "2", "--micro-batches", "2",
                     "--mini-batches", "2", "-o", file})
              .status == 0);
  const Answer ran =
      run_xpipe(emulate({"--schedule", file, "--forward-us", "100", "--backward-us", "100"}));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(ran.out.find("gpipe, 2 stages") != std::string::npos);
}

TEST_CASE("xpipe train --device emulated: what has no effect is refused, all at once") {
  const Answer refused = run_xpipe(emulate({"--policy", "gpipe,xpipe", "--stages", "2", "--model",
                                            "lenet5", "--epochs", "3", "--lr", "0.1"}));
  CHECK(refused.status == 2);
  CHECK(refused.out.empty());
  for (const char* option : {"--policy: found 2", "--model", "--epochs", "--lr"}) {
    CAPTURE(option);
    CHECK(refused.err.find(option) != std::string::npos);
  }
  const Answer answers = run_xpipe(with_pipeline(emulate({}), {"--what-if", "10"}));
  CHECK(answers.status == 2);
  CHECK(answers.err.find("--what-if") != std::string::npos);
}

TEST_CASE("xpipe train --device emulated: an output that cannot be written is found first") {
  const Answer refused =
      run_xpipe(with_pipeline(emulate({}), {"--trace", "/no/such/folder/run.json"}));
  CHECK(refused.status == 2);
  CHECK(refused.err.find("/no/such/folder") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
