// profile, plan, simulate, train, compare, and back: each step takes the file of the one before.
// What is asserted does not depend on how fast the machine is.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kMachine =
    R"({"format": "xpipe.cluster", "version": 1, "name": "two cores",
        "devices": [{"name": "core 0", "memory_bandwidth_bytes_per_s": 10e9},
                    {"name": "core 1", "memory_bandwidth_bytes_per_s": 10e9}],
        "default_link": {"latency_us": 20}})";

Answer succeed(const std::vector<std::string>& arguments) {
  Answer answer = run_xpipe(arguments);
  REQUIRE_MESSAGE(answer.status == 0, answer.err);
  return answer;
}

/// `name` is the key under which both say so: in ns, of all tasks whose text begins so, "0F".
std::map<std::string, std::vector<std::int64_t>> task_times(const std::string& trace) {
  std::map<std::string, std::vector<std::int64_t>> times;
  const Json document = Json::parse(read_all(trace));
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") {
      continue;
    }
    const auto text = event.at("name").get<std::string>();
    std::size_t end = 0;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) {
      ++end;
    }
    std::size_t kind = end;
    while (kind < text.size() &&
           (std::isalpha(static_cast<unsigned char>(text[kind])) != 0 || text[kind] == '_')) {
      ++kind;
    }
    const Json& args = event.at("args");
    times[text.substr(0, kind)].push_back(args.at("end_ns").get<std::int64_t>() -
                                          args.at("start_ns").get<std::int64_t>());
  }
  return times;
}

std::int64_t median(std::vector<std::int64_t> times) {
  std::ranges::sort(times);
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle] + 1) / 2;
}

TEST_CASE("closed loop: each step takes what the one before wrote, and a run calibrates a plan") {
  const ScratchFolder folder;
  const std::string profile = folder.path("mlp.json");
  succeed({"profile", "--model", "mlp", "--set", "depth=3", "--set", "hidden=16", "--input",
           "1x28x28", "--batch-size", "125", "--repeats", "3", "--layers", "-o", profile});
  succeed({"check", profile});
  const Json measured = Json::parse(read_all(profile));
  for (const Json& layer : measured.at("layers")) {
    for (const char* kind : {"forward", "backward", "backward_input", "update"}) {
      CHECK(layer.at("samples_us").at(kind).size() == 3);
    }
    std::vector<double> forward = layer.at("samples_us").at("forward");
    std::ranges::sort(forward);
    CHECK(layer.at("forward_us").get<double>() == forward[1]);
  }

  const std::string machine = folder.write("machine.json", kMachine);
  const Json plan =
      Json::parse(succeed({"plan", "--profile", profile, "--cluster", machine, "--stages", "2",
                           "--policy", "gpipe", "--batch-size", "500", "--json"})
                      .out);
  REQUIRE(plan.at("partition").size() == 2);
  const std::string partition = std::to_string(plan.at("partition")[0].get<int>()) + "," +
                                std::to_string(plan.at("partition")[1].get<int>());

  const std::string planned = folder.path("plan.json");
  const std::string ran = folder.path("run.json");
  const std::vector<std::string> set_up{"--policy",        "gpipe", "--stages",     "2",
                                        "--micro-batches", "4",     "--batch-size", "500"};
  const auto with = [&](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), set_up.begin(), set_up.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  succeed(with({"simulate"}, {"--partition", partition, "--profile", profile, "--cluster", machine,
                              "--mini-batches", "8", "--trace", planned}));
  succeed(
      with({"train"}, {"--partition", partition, "--model", "mlp", "--set", "depth=3", "--set",
                       "hidden=16", "--data", in_tree("examples/data/digits"), "--trace", ran}));
  const Json compared = Json::parse(succeed({"compare", planned, ran, "--json"}).out);
  // 8 mini-batches: 2 x 4 forwards and backwards, 4 messages each way at both ends, 2 steps.
  CHECK(compared.at("tasks") == 8 * (16 + 16 + 2));

  const std::string calibrated = folder.path("calibrated.json");
  const std::string measured_machine = folder.path("calibrated_machine.json");
  succeed({"profile", "--from-trace", ran, "--profile", profile, "-o", calibrated,
           "--cluster-output", measured_machine});
  succeed({"check", calibrated});
  succeed({"check", measured_machine});
  const std::string again = folder.path("again.json");
  succeed(with({"simulate"}, {"--partition", partition, "--profile", calibrated, "--cluster",
                              measured_machine, "--mini-batches", "8", "--trace", again}));
  const auto of_run = task_times(ran);
  const auto of_plan = task_times(again);
  for (const char* kind : {"0F", "1F", "0B", "1B", "0STEP", "1STEP"}) {
    CAPTURE(kind);
    const std::vector<std::int64_t>& times = of_plan.at(kind);
    REQUIRE(times.size() == of_run.at(kind).size());
    CHECK(std::ranges::all_of(times,
                              [&](std::int64_t time) { return time == median(of_run.at(kind)); }));
  }
  // The new plan can be laid over the run, too.
  succeed({"compare", again, ran});
}

TEST_CASE("xpipe profile --from-trace: slips are told with the way out") {
  const ScratchFolder folder;
  const std::string profile = in_tree("examples/profiles/vgg16.json");
  const std::string planned = folder.path("plan.json");
  succeed({"simulate", "--policy", "gpipe", "--stages", "2", "--micro-batches", "2",
           "--mini-batches", "1", "--profile", profile, "--trace", planned});
  Answer answer = run_xpipe({"profile", "--from-trace", planned});
  CHECK(answer.status == 2);
  CHECK(answer.err.find("--profile") != std::string::npos);
  answer = run_xpipe({"profile", "--from-trace", planned, "--profile", profile, "--repeats", "3"});
  CHECK(answer.status == 2);
  answer = run_xpipe({"profile", "--profile", profile});
  CHECK(answer.status == 2);
  CHECK(answer.err.find("--from-trace") != std::string::npos);
  answer = run_xpipe({"profile", "--from-trace", profile, "--profile", profile});
  CHECK(answer.status == 3);
  answer = run_xpipe({"profile", "--from-trace", folder.path("none.json"), "--profile", profile});
  CHECK(answer.status == 3);
  answer = run_xpipe(
      {"profile", "--from-trace", planned, "--profile", profile, "-o", folder.path("no/out.json")});
  CHECK(answer.status == 2);
  CHECK(folder.list() == std::vector<std::string>{"plan.json"});
}

}  // namespace
}  // namespace xpipe::app_test
