// Training in several processes gives what one process gives: weights, losses, one trace.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_ranks.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> train(const std::string& policy,
                               const std::vector<std::string>& more,
                               const std::string& batch_size = "500") {
  std::vector<std::string> command = {"train",
                                      "--policy",
                                      policy,
                                      "--model",
                                      "lenet5",
                                      "--data",
                                      in_tree("examples/data/digits"),
                                      "--stages",
                                      "4",
                                      "--batch-size",
                                      batch_size,
                                      "--micro-batches",
                                      "4",
                                      "--seed",
                                      "3",
                                      "--timeout-s",
                                      "60"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

void check_ended_well(const std::map<std::uint32_t, Answer>& answers) {
  for (const auto& [rank, answer] : answers) {
    CAPTURE(rank);
    CHECK_MESSAGE(answer.status == 0, answer.err);
    CHECK(answer.err.find("closed by peer") == std::string::npos);
    CHECK((rank == 0 || answer.out.empty()));
  }
}

}  // namespace

TEST_CASE("processes: 2 and 4 processes give the bits of one, for every policy") {
  for (const char* policy : {"xpipe", "gpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const ScratchFolder folder;
    const Answer alone = run_xpipe(train(policy, {"--json", "--metrics", folder.path("alone")}));
    REQUIRE_MESSAGE(alone.status == 0, alone.err);
    const Json expected = Json::parse(alone.out);
    for (const std::uint32_t world : {2U, 4U}) {
      CAPTURE(world);
      RankedRun run(world);
      run.start_all(train(policy, {"--json", "--metrics", folder.path("shared")}));
      const auto answers = run.wait_all();
      check_ended_well(answers);
      REQUIRE(!answers.at(0).out.empty());
      const Json found = Json::parse(answers.at(0).out);
      CHECK(found["weights_hash"] == expected["weights_hash"]);
      CHECK(found["memory"] == expected["memory"]);
      CHECK(found["epochs"].size() == 1);
      CHECK(timeless(folder.path("shared")) == timeless(folder.path("alone")));
    }
  }
}

TEST_CASE("processes: rank 0 writes one trace of all, in order, and one record a mini-batch (I5)") {
  const ScratchFolder folder;
  const std::string trace = folder.path("run.json");
  const std::string metrics = folder.path("metrics");
  RankedRun run(4);
  run.start_all(train("xpipe", {"--trace", trace, "--metrics", metrics, "--prediction-error",
                                "every=2", "--last-batch", "drop"}));
  check_ended_well(run.wait_all());
  CHECK(folder.list() == std::vector<std::string>{"metrics", "run.json"});
  const Answer checked = run_xpipe({"check", trace});
  CHECK_MESSAGE(checked.status == 0, checked.err);
  std::size_t mini_batches = 0;
  for (const Json& record : timeless(metrics)) {
    if (record["kind"] == "mini_batch") {
      ++mini_batches;
      CHECK(record["loss"].get<double>() > 0.0);
      if (record.contains("prediction_error")) {  // from the ranks of all four stages
        CHECK(record["prediction_error"].size() == 4);
      }
    }
  }
  CHECK(mini_batches == 8);
  const Answer compared = run_xpipe({"compare", trace, trace, "--json"});
  REQUIRE_MESSAGE(compared.status == 0, compared.err);
  CHECK(Json::parse(compared.out)["makespan_ratio"].get<double>() == 1.0);
}

TEST_CASE("processes: the inline device, and two stages a process that talk both ways (G4)") {
  for (const char* device : {"cpu", "inline"}) {
    CAPTURE(device);
    const std::vector<std::string> arguments = train("gpipe", {"--json", "--device", device});
    const Answer alone = run_xpipe(arguments);
    REQUIRE_MESSAGE(alone.status == 0, alone.err);
    RankedRun run(2);
    run.start_all(arguments);
    const auto answers = run.wait_all();
    check_ended_well(answers);
    CHECK(Json::parse(answers.at(0).out)["weights_hash"] == Json::parse(alone.out)["weights_hash"]);
  }
}

TEST_CASE("processes: whichever rank is slow at the end, nothing is lost (K5)") {
  std::string hash;
  for (const char* fault : {"3 3B slow=100", "0 0B slow=100"}) {
    RankedRun run(4);
    run.start_all(train("gpipe", {"--json"}, "4000"), {{"XPIPE_TEST_FAULT", fault}});
    const auto answers = run.wait_all();
    check_ended_well(answers);
    const Json document = Json::parse(answers.at(0).out);
    CHECK(document["mini_batches"] == 1);
    CHECK((hash.empty() || document["weights_hash"] == hash));
    hash = document["weights_hash"];
  }
}

TEST_CASE("processes: what cannot be is refused with both numbers before anybody is met (K3)") {
  struct Case {
    const char* rank;
    const char* world;
    std::vector<std::string> more;
    const char* said;
  };

  const std::vector<Case> cases = {
      {"0", "3", {}, "4 device(s) and 3 process(es)"},
      {"0", "8", {"--stages", "3"}, "3 device(s) and 8 process(es)"},
      {"4", "4", {}, "is 4, and WORLD_SIZE is 4"},
      {"x", "4", {}, "RANK: is 'x'"},
      {"0", "4", {"--transport", "nccl"}, "no CUDA device"},
      {"", "", {"--transport", "gloo"}, "torchrun"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.said);
    std::vector<std::string> arguments = train("gpipe", c.more);
    if (!c.more.empty() && c.more[0] == "--stages") {
      arguments = {"train", "--policy", "gpipe", "--data", in_tree("examples/data/digits")};
      arguments.insert(arguments.end(), c.more.begin(), c.more.end());
    }
    RankedRun run(1);
    run.start(0, arguments, {{"RANK", c.rank}, {"WORLD_SIZE", c.world}});
    const Answer answer = run.wait(0);
    CHECK(answer.status == 2);
    CHECK(answer.out.empty());
    CHECK_MESSAGE(answer.err.find(c.said) != std::string::npos, answer.err);
  }
}

TEST_CASE("processes: nccl says what it lacks, with a way out, before anybody is met (K4)") {
  struct Case {
    std::vector<std::string> more;
    RankedRun::Variables variables;
    std::vector<std::string> said;
  };

  // A machine may have GPUs: CUDA is told to show none.
  const RankedRun::Variables none{{"CUDA_VISIBLE_DEVICES", ""}};
  const RankedRun::Variables alone{{"CUDA_VISIBLE_DEVICES", ""}, {"RANK", ""}, {"WORLD_SIZE", ""}};
  const std::vector<Case> cases = {
      {{}, none, {"--transport", "no CUDA device"}},
      {{"--device", "cuda"}, none, {"--transport", "no CUDA device"}},
      {{"--device", "cpu"}, none, {"--transport", "no CUDA device"}},
      {{}, alone, {"torchrun", "no CUDA device"}},
      {{"--stages", "2", "--device-map", "0,0"},
       {},
       {"--device-map", "device 0 of rank 0 and device 1 of rank 1 on GPU 0", "gloo"}},
      {{"--stages", "2", "--device-map", "0"},
       {},
       {"--device-map", "on GPU 0", "--transport gloo"}},
      {{"--stages", "2", "--device-map", "0,0"}, {{"LOCAL_RANK", "7"}}, {"LOCAL_RANK", "is '7'"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.said);
    std::vector<std::string> arguments = {
        "train",       "--policy", "gpipe", "--data", in_tree("examples/data/digits"),
        "--transport", "nccl"};
    arguments.insert(arguments.end(), c.more.begin(), c.more.end());
    if (c.more.empty() || c.more[0] != "--stages") {
      arguments.insert(arguments.end(), {"--stages", "2"});
    }
    RankedRun run(2);
    run.start(1, arguments, c.variables);
    const Answer answer = run.wait(1);
    CHECK(answer.status == 2);
    CHECK(answer.out.empty());
    for (const std::string& said : c.said) {
      CHECK_MESSAGE(answer.err.find(said) != std::string::npos, answer.err);
    }
  }
}

TEST_CASE("processes: --transport inprocess trains alone whatever the launcher says") {
  RankedRun run(2);
  run.start(0, train("gpipe", {"--json", "--transport", "inprocess"}));
  CHECK(run.wait(0).status == 0);
}

}  // namespace xpipe::app_test
