// Training from the outside: the metrics, the trace of the run, and how a run ends.
#include <csignal>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> train(const std::string& policy,
                               const std::vector<std::string>& more,
                               const std::string& rate = "0.002") {
  std::vector<std::string> command = {"train",
                                      "--policy",
                                      policy,
                                      "--data",
                                      in_tree("examples/data/digits"),
                                      "--batch-size",
                                      "500",
                                      "--seed",
                                      "3",
                                      "--lr",
                                      rate};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST_CASE("xpipe train: one record a mini-batch and one an epoch, the same for the same seed") {
  const ScratchFolder folder;
  for (const char* name : {"a", "b"}) {
    const Answer answer =
        run_xpipe(train("xpipe", {"--stages", "2", "--micro-batches", "2", "--epochs", "2",
                                  "--metrics", folder.path(name)}));
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    CHECK(answer.err.find('\r') == std::string::npos);
    CHECK(answer.err.find('\x1b') == std::string::npos);
  }
  const std::vector<Json> records = timeless(folder.path("a"));
  CHECK(records == timeless(folder.path("b")));
  REQUIRE(records.size() == 2 * (8 + 1));
  CHECK(records[0]["kind"] == "mini_batch");
  CHECK(records[8]["kind"] == "epoch");
  CHECK(records[8]["epoch"] == 0);
  CHECK(records[17]["policy"] == "xpipe");
  CHECK(records[17]["seed"] == 3);
  CHECK(records[17]["accuracy"].get<double>() > records[8]["accuracy"].get<double>());
}

TEST_CASE("xpipe train: with --json stdout is one document, equal bits for equal seeds") {
  const std::vector<std::string> command =
      train("xpipe", {"--stages", "3", "--micro-batches", "2", "--json"});
  const Json first = Json::parse(run_xpipe(command).out);
  const Json second = Json::parse(run_xpipe(command).out);
  CHECK(first["format"] == "xpipe.training");
  CHECK(first["epochs"].size() == 1);
  CHECK(first["weights_hash"] == second["weights_hash"]);
  // master, forward and backward copy, whatever the stage (P10)
  for (const Json& stage : first["memory"]) {
    CHECK(stage["weight_storages"].get<int>() <= 3 * stage["parameter_tensors"].get<int>());
  }
}

TEST_CASE("xpipe train: inline and cpu write the same metrics") {
  const ScratchFolder folder;
  for (const char* device : {"inline", "cpu"}) {
    REQUIRE(run_xpipe(train("spectrain", {"--stages", "3", "--device", device, "--metrics",
                                          folder.path(device)}))
                .status == 0);
  }
  CHECK(timeless(folder.path("inline")) == timeless(folder.path("cpu")));
}

TEST_CASE("xpipe train: the run's trace is valid and compares with the plan of its schedule") {
  const ScratchFolder folder;
  const std::string profile = folder.path("lenet5.json");
  REQUIRE(run_xpipe({"profile", "--model", "lenet5", "--input", "1x28x28", "--batch-size", "125",
                     "--repeats", "3", "-o", profile})
              .status == 0);
  CHECK(run_xpipe({"check", profile}).status == 0);
  for (const char* policy : {"gpipe", "xpipe", "pipedream"}) {
    CAPTURE(policy);
    const std::string run = folder.path(std::string(policy) + "-run.json");
    const std::string plan = folder.path(std::string(policy) + "-plan.json");
    const std::vector<std::string> sizes = {"--stages", "4", "--micro-batches", "4"};
    std::vector<std::string> command = train(policy, {"--profile", profile, "--trace", run});
    command.insert(command.end(), sizes.begin(), sizes.end());
    const Answer trained = run_xpipe(command);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const Answer checked = run_xpipe({"check", run});
    CHECK_MESSAGE(checked.status == 0, checked.err);
    command = {"simulate", "--policy",     policy, "--mini-batches", "8", "--profile",
               profile,    "--batch-size", "500",  "--trace",        plan};
    command.insert(command.end(), sizes.begin(), sizes.end());
    REQUIRE(run_xpipe(command).status == 0);
    const Answer compared = run_xpipe({"compare", plan, run, "--json"});
    REQUIRE_MESSAGE(compared.status == 0, compared.err);
    CHECK(Json::parse(compared.out)["makespan_ratio"].get<double>() > 0.0);
  }
}

TEST_CASE("xpipe train: prediction errors are recorded where asked for") {
  const ScratchFolder folder;
  const std::string metrics = folder.path("m");
  REQUIRE(run_xpipe(train("xpipe", {"--stages", "2", "--micro-batches", "2", "--epochs", "2",
                                    "--prediction-error", "every=2", "--metrics", metrics}))
              .status == 0);
  std::size_t probed = 0;
  for (const Json& record : timeless(metrics)) {
    if (record["kind"] == "mini_batch" && record.contains("prediction_error")) {
      ++probed;
      CHECK(record["prediction_error"].size() == 2);
      CHECK(record["unpredicted_error"].size() == 2);
    }
    if (record["kind"] == "epoch") {
      CHECK(record["probe_bytes"].get<std::int64_t>() > 0);
    }
  }
  CHECK(probed == 8);
}

TEST_CASE("xpipe train: a loss that is no number ends the run with status 5 and no files") {
  const ScratchFolder folder;
  const Answer answer = run_xpipe(train("gpipe",
                                        {"--stages", "2", "--optimizer", "sgd", "--metrics",
                                         folder.path("m"), "--trace", folder.path("t")},
                                        "1000000"));
  CHECK(answer.status == 5);
  CHECK(answer.err.find("mini-batch") != std::string::npos);
  CHECK(folder.list().empty());
}

TEST_CASE("xpipe train: Ctrl-C ends with 130 and SIGTERM with 143, and leaves no files") {
  for (const auto& [signal, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const ScratchFolder folder;
    const Answer answer = run_xpipe_and_signal(
        train("xpipe", {"--stages", "4", "--micro-batches", "4", "--epochs", "1000", "--metrics",
                        folder.path("m"), "--trace", folder.path("t")}),
        "samples/s\n", signal);
    CHECK(answer.status == status);
    CHECK(folder.list().empty());
  }
}

TEST_CASE("xpipe train: what cannot be is refused before any work") {
  const ScratchFolder folder;

  struct Case {
    std::vector<std::string> more;
    int status;
    const char* said;
  };

  const std::vector<Case> cases = {
      {{"--stages", "99"}, 2, "99"},
      {{"--micro-batches", "501"}, 2, "501"},
      {{"--partition", "1,1"}, 2, "partition"},
      {{"--optimizer", "adamm"}, 2, "adam"},
      {{"--momentum", "0.9"}, 2, "--momentum"},
      {{"--set", "predict=some"}, 2, "predict"},
      {{"--set", "hidden=4"}, 2, "hidden"},
      {{"--prediction-error", "2"}, 2, "every=N"},
      {{"--trace-epoch", "0"}, 2, "--trace"},
      {{"--metrics", "no/such/folder/m"}, 2, "no/such/folder"},
      {{"--trace", "same", "--metrics", "same"}, 2, "same"},
      {{"--profile", "missing.json"}, 3, "missing.json"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.said);
    const Answer answer = run_xpipe(train("xpipe", c.more));
    CHECK(answer.status == c.status);
    CHECK(answer.out.empty());
    CHECK_MESSAGE(answer.err.find(c.said) != std::string::npos, answer.err);
  }
  const std::string other = folder.path("mlp.json");
  REQUIRE(run_xpipe({"profile", "--model", "mlp", "--input", "1x28x28", "--batch-size", "4",
                     "--repeats", "1", "-o", other})
              .status == 0);
  const Answer other_model = run_xpipe(train("xpipe", {"--stages", "2", "--profile", other}));
  CHECK(other_model.status == 2);
  CHECK(other_model.err.find("another model") != std::string::npos);
  const Answer no_data = run_xpipe({"train", "--policy", "gpipe", "--data", folder.path("")});
  CHECK(no_data.status == 3);
}

}  // namespace
}  // namespace xpipe::app_test
