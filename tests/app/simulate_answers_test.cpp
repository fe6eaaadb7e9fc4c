// What `xpipe simulate` answers: published field cases, and figures that must agree with each
// other.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using doctest::Approx;
using Json = nlohmann::json;

/// Layers with these forwards (us), backwards twice as long, taken with one sample.
std::string layers_of(const std::vector<int>& forwards) {
  Json profile = {{"format", "xpipe.profile"}, {"version", 1}, {"name", "field case"},
                  {"provenance", "by hand"},   {"samples", 1}, {"layers", Json::array()}};
  for (std::size_t k = 0; k < forwards.size(); ++k) {
    profile["layers"].push_back({{"name", "layer" + std::to_string(k)},
                                 {"forward_us", forwards[k]},
                                 {"backward_us", 2 * forwards[k]},
                                 {"output_bytes", 100'000},
                                 {"saved_bytes", 10'000'000},
                                 {"parameter_bytes", 1000}});
  }
  return profile.dump();
}

bool has_null(const Json& json) {
  return json.is_null() || std::any_of(json.begin(), json.end(), [](const Json& part) {
           return part.is_null() || (part.is_structured() && has_null(part));
         });
}

TEST_CASE("xpipe simulate: the number of stages moves the result (A6)") {
  const ScratchFolder folder;
  const std::string profile = folder.write("u4.json", layers_of({1000, 1000, 1000, 1000}));
  const std::vector<std::pair<int, std::int64_t>> expected = {
      {1, 48'000'000}, {2, 30'000'000}, {4, 21'000'000}};
  for (const auto& [stages, makespan] : expected) {
    const Json run = simulated_run({"--policy", "gpipe", "--profile", profile, "--batch-size", "4",
                                    "--micro-batches", "4", "--mini-batches", "1", "--stages",
                                    std::to_string(stages)});
    CHECK(run["makespan_ns"] == makespan);
  }
}

TEST_CASE("xpipe simulate: layers that cost nothing are layers (F2)") {
  const ScratchFolder folder;
  const std::string profile = folder.write("zero.json", layers_of({1000, 0, 0, 1000}));
  const std::vector<std::string> command = {"--policy",       "gpipe", "--profile",       profile,
                                            "--batch-size",   "2",     "--micro-batches", "2",
                                            "--mini-batches", "1",     "--stages",        "4"};
  const Json run = simulated_run(command);
  CHECK(run["makespan_ns"] == 9'000'000);
  for (const int idle : {1, 2}) {
    CHECK(run["devices"][idle]["utilization"].is_number());
    CHECK(run["devices"][idle]["utilization"] == 0.0);
  }
  for (const int busy : {0, 3}) {
    CHECK(run["devices"][busy]["utilization"].get<double>() == Approx(2.0 / 3).epsilon(1e-6));
  }
  CHECK_FALSE(has_null(run));
  const std::string trace = folder.path("trace.json");
  std::vector<std::string> traced = command;
  traced.insert(traced.begin(), "simulate");
  traced.insert(traced.end(), {"--trace", trace});
  CHECK(run_xpipe(traced).status == 0);
  CHECK(run_xpipe({"check", trace}).status == 0);
}

TEST_CASE("xpipe simulate: the critical path is the makespan, kind by kind") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const Json run = simulated_run({"--policy", policy, "--stages", "4", "--micro-batches", "3",
                                    "--latency-us", "70", "--task-overhead-us", "5"});
    std::int64_t sum = 0;
    double shares = 0.0;
    for (const auto& [kind, time] : run["critical_path_ns_by_kind"].items()) {
      sum += time.get<std::int64_t>();
      const double share = run["critical_path_share_by_kind"][kind].get<double>();
      CHECK(share == Approx(time.get<double>() / run["makespan_ns"].get<double>()));
      shares += share;
    }
    CHECK(sum == run["makespan_ns"]);
    CHECK(shares == Approx(1.0).epsilon(1e-12));
  }
}

TEST_CASE("xpipe simulate: the summary's figures are those of its devices, links and stages") {
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", layers_of({900, 1300, 700, 1100}));
  const Json run =
      simulated_run({"--policy", "xpipe", "--profile", profile, "--batch-size", "8", "--stages",
                     "4", "--micro-batches", "2", "--latency-us", "40", "--memory-over-time"});
  const double makespan = run["makespan_ns"].get<double>();
  double exposed = 0.0;
  double busiest = 0.0;
  std::int64_t fullest = 0;
  for (const Json& device : run["devices"]) {
    exposed += device["exposed_communication_ns"].get<double>() / makespan / 4;
    busiest = std::max(busiest, device["utilization"].get<double>());
    fullest = std::max(fullest, device["peak_memory_bytes"].get<std::int64_t>());
    const Json& memory = device["memory_over_time"];
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < memory["time_ns"].size(); ++i) {
      std::int64_t held = 0;
      for (const auto& [kind, bytes] : memory.items()) {
        REQUIRE(bytes.size() == memory["time_ns"].size());
        held += kind == "time_ns" ? 0 : bytes[i].get<std::int64_t>();
      }
      peak = std::max(peak, held);
    }
    // A peak may last no time at all, between what starts and what ends at one instant.
    CHECK(peak <= device["peak_memory_bytes"]);
    CHECK(peak >= memory["weights"][0].get<std::int64_t>() + 10'000'000);
    CHECK(memory["activations"].back() == 0);
  }
  CHECK(run["exposed_of_total"].get<double>() == Approx(exposed).epsilon(1e-12));
  CHECK(run["exposed_of_total"] <= run["bubble_of_total"]);
  CHECK(run["busiest_utilization"] == busiest);
  CHECK(run["peak_memory_bytes"] == fullest);
  for (const Json& link : run["links"]) {
    CHECK(link["utilization"].get<double>() ==
          Approx(link["busy_ns"].get<double>() / makespan).epsilon(1e-12));
  }
  std::int64_t stalest = 0;
  for (const Json& stage : run["staleness"]) {
    stalest = std::max(stalest, stage["forward_max"].get<std::int64_t>());
  }
  CHECK(run["forward_staleness_max"] == stalest);
}

TEST_CASE("xpipe simulate: extrapolated and replayed in full, a long run has the same figures") {
  for (const char* policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const std::vector<std::string> command = {"--policy",        policy, "--stages",     "4",
                                              "--micro-batches", "2",    "--latency-us", "130",
                                              "--mini-batches",  "301",  "--what-if"};
    const Json fast = simulated_run(command);
    std::vector<std::string> full_command = command;
    full_command.emplace_back("--replay-all");
    const Json full = simulated_run(full_command);
    CHECK(full["replayed_mini_batches"] == 301);
    CHECK(fast["replayed_mini_batches"] < 150);
    for (const auto& [key, value] : full.items()) {
      if (key != "replayed_mini_batches" && key != "critical_path" && key != "notes" &&
          key != "what_if") {
        CHECK_MESSAGE(fast[key] == value, key);
      }
    }
    for (const Json& row : full["what_if"]["rows"]) {
      const auto& rows = fast["what_if"]["rows"];
      const auto like = std::find_if(rows.begin(), rows.end(), [&row](const Json& other) {
        return other["name"] == row["name"];
      });
      REQUIRE(like != rows.end());
      CHECK((*like)["makespan_ns"] == row["makespan_ns"]);
      CHECK((*like)["steady_ns_per_mini_batch"] == row["steady_ns_per_mini_batch"]);
    }
  }
}

TEST_CASE("xpipe simulate: the table fits a terminal of 100 columns") {
  const Answer answer =
      run_xpipe({"simulate", "--policy", "xpipe,gpipe,pipedream,spectrain", "--stages", "8",
                 "--micro-batches", "1,8", "--latency-us", "100", "--what-if"});
  REQUIRE(answer.status == 0);
  std::size_t begin = 0;
  while (begin < answer.out.size()) {
    const std::size_t end = answer.out.find('\n', begin);
    const std::string line = answer.out.substr(begin, end - begin);
    CHECK_MESSAGE((line.size() <= 100 || line.starts_with("note: ")), line);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace xpipe::app_test
