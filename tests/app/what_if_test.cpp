// What-if against closed forms: what 10 % more of one thing brings, by hand.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using doctest::Approx;
using Json = nlohmann::json;

/// The row of that name.
Json row(const Json& run, const std::string& name) {
  for (const Json& candidate : run["what_if"]["rows"]) {
    if (candidate["name"] == name) {
      return candidate;
    }
  }
  FAIL("no row '", name, "' in ", run["what_if"].dump());
  return {};
}

/// A chain of layers with these forwards (us); a backward is twice as long. Each layer hands on
/// `output` bytes.
std::string profile_of(const std::vector<int>& forwards, int output, const Json& edges = nullptr) {
  Json profile = {{"format", "xpipe.profile"}, {"version", 1}, {"name", "what if"},
                  {"provenance", "by hand"},   {"samples", 4}, {"layers", Json::array()}};
  for (std::size_t k = 0; k < forwards.size(); ++k) {
    profile["layers"].push_back({{"name", "layer" + std::to_string(k)},
                                 {"forward_us", forwards[k]},
                                 {"backward_us", 2 * forwards[k]},
                                 {"output_bytes", output},
                                 {"saved_bytes", 0},
                                 {"parameter_bytes", 1'000'000}});
  }
  if (!edges.is_null()) {
    profile["edges"] = edges;
  }
  return profile.dump();
}

Json cluster_of(int devices) {
  Json cluster = {{"format", "xpipe.cluster"},
                  {"version", 1},
                  {"name", "by hand"},
                  {"devices", Json::array()},
                  {"links", Json::array()}};
  for (int d = 0; d < devices; ++d) {
    cluster["devices"].push_back({{"name", "d" + std::to_string(d)}});
  }
  return cluster;
}

TEST_CASE("what-if: of a compute-bound pipeline only the slowest stage counts, and counts fully") {
  // Steady state is the slowest stage's T (f + b) = 4 * 6.6 ms / 4; 10 % faster it is 6 ms, and
  // still the slowest: 10 % more speed. Every other stage brings nothing.
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", profile_of({1000, 1000, 2200, 1000}, 0));
  const Json run = simulated_run({"--policy", "xpipe", "--profile", profile, "--stages", "4",
                                  "--micro-batches", "4", "--what-if"});
  CHECK(run["what_if"]["percent"] == 10.0);
  CHECK(run["steady_ns_per_mini_batch"] == 6'600'000);
  const Json slowest = row(run, "device 2 (stage 2)");
  CHECK(slowest == run["what_if"]["rows"][0]);
  CHECK(slowest["steady_ns_per_mini_batch"] == 6'000'000);
  CHECK(slowest["steady_speed_up"].get<double>() == Approx(0.1).epsilon(1e-12));
  for (const char* other : {"device 0 (stage 0)", "device 1 (stage 1)", "device 3 (stage 3)"}) {
    CHECK(row(run, other)["steady_speed_up"] == 0.0);
  }
}

TEST_CASE("what-if: a larger percentage stops where the next stage is the slowest") {
  // 3.3 ms and 3.0 ms: 20 % more speed would make the first 2.75 ms, but then the second bounds.
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", profile_of({1100, 1000}, 0));
  const Json run = simulated_run({"--policy", "xpipe", "--profile", profile, "--stages", "2",
                                  "--micro-batches", "1", "--what-if", "20"});
  const Json slowest = row(run, "device 0 (stage 0)");
  CHECK(slowest["steady_ns_per_mini_batch"] == 3'000'000);
  CHECK(slowest["steady_speed_up"].get<double>() == Approx(0.1).epsilon(1e-12));
}

TEST_CASE("what-if: a link whose messages are there in time makes no difference") {
  // Stage 0 feeds 1 and 2, 1 feeds 2. 0 > 2 takes 0.5 ms while stage 1 computes for 1 ms and more.
  const ScratchFolder folder;
  const Json edges =
      Json::parse(R"([["layer0", "layer1"], ["layer1", "layer2"], ["layer0", "layer2"]])");
  const std::string profile =
      folder.write("p.json", profile_of({1000, 1000, 1000}, 500'000, edges));
  Json cluster = cluster_of(3);
  cluster["default_link"] = {{"bandwidth_bytes_per_s", 1e9}};
  const std::string file = folder.write("c.json", cluster.dump());
  const Json run = simulated_run({"--policy", "gpipe", "--profile", profile, "--cluster", file,
                                  "--stages", "3", "--micro-batches", "1", "--what-if"});
  const Json skip = row(run, "link 0<>2");
  CHECK(skip["makespan_ns"] == run["makespan_ns"]);
  CHECK(skip["makespan_speed_up"] == 0.0);
  CHECK(skip["steady_speed_up"] == 0.0);
  CHECK(skip["critical_path_share"] == 0.0);
  CHECK(row(run, "link 0<>1")["makespan_speed_up"] > 0.0);
}

TEST_CASE("what-if: GPipe's latencies count 2 (D - 1) times a mini-batch") {
  // makespan = N ((T + D - 1)(f + b) + 2 (D - 1) L), L = 110 us, then 100 us.
  for (const int stages : {3, 4, 6}) {
    CAPTURE(stages);
    const Json run =
        simulated_run({"--policy", "gpipe", "--stages", std::to_string(stages), "--micro-batches",
                       "4", "--mini-batches", "5", "--latency-us", "110", "--what-if"});
    const std::int64_t compute = (4 + stages - 1) * std::int64_t{3'000'000};
    CHECK(run["makespan_ns"] == 5 * (compute + 2 * (stages - 1) * 110'000));
    const Json latency = row(run, "latency of every link");
    CHECK(latency["makespan_ns"] == 5 * (compute + 2 * (stages - 1) * 100'000));
    CHECK(latency["steady_ns_per_mini_batch"] == compute + 2 * (stages - 1) * 100'000);
    // One link of the D - 1 is crossed twice a mini-batch.
    CHECK(row(run, "link 0<>1")["makespan_ns"] ==
          5 * (compute + 2 * (stages - 1) * 110'000 - 2 * 10'000));
    const double share = 5.0 * 2 * (stages - 1) * 110'000 / run["makespan_ns"].get<double>();
    CHECK(latency["critical_path_share"].get<double>() == Approx(share).epsilon(1e-12));
  }
}

TEST_CASE("what-if: overhead falls on every task of a compute lane") {
  // One stage, one micro-batch: a forward, a backward and a step.
  const Json run = simulated_run({"--policy", "gpipe", "--stages", "1", "--micro-batches", "1",
                                  "--mini-batches", "1", "--task-overhead-us", "110", "--what-if"});
  CHECK(run["makespan_ns"] == 3'330'000);
  const Json overhead = row(run, "overhead of every task");
  CHECK(overhead["makespan_ns"] == 3'300'000);
  CHECK(overhead["critical_path_share"].get<double>() == Approx(330.0 / 3330).epsilon(1e-12));
}

TEST_CASE("what-if: memory bandwidth prices steps") {
  // Adam's step touches bytes in proportion to the parameters; twice the bandwidth, half the time.
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", profile_of({1000}, 0));
  Json cluster = cluster_of(1);
  cluster["devices"][0]["memory_bandwidth_bytes_per_s"] = 1e9;
  const std::string file = folder.write("c.json", cluster.dump());
  const Json run =
      simulated_run({"--policy", "gpipe", "--profile", profile, "--cluster", file, "--stages", "1",
                     "--micro-batches", "1", "--mini-batches", "1", "--what-if", "100"});
  const std::int64_t step = run["makespan_ns"].get<std::int64_t>() - 3'000'000;
  REQUIRE(step > 0);
  CHECK(row(run, "memory bandwidth of every device (steps, predictions, stashes)")["makespan_ns"] ==
        3'000'000 + step / 2);
  CHECK(row(run, "device 0 (stage 0)")["makespan_ns"] == 1'500'000 + step);
}

TEST_CASE("what-if: a shared link is what bounds the links that cross it") {
  // 1.1 MB over 1 GB/s: 1.1 ms each way, then 1.0 ms. The pair's own link is no bound.
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", profile_of({1000, 1000}, 1'100'000));
  Json cluster = cluster_of(2);
  cluster["shared_links"] = {{{"name", "nic"}, {"bandwidth_bytes_per_s", 1e9}, {"latency_us", 0}}};
  cluster["links"] = {{{"from", "d0"},
                       {"to", "d1"},
                       {"bandwidth_bytes_per_s", 5e9},
                       {"latency_us", 0},
                       {"via", {"nic"}}}};
  const std::string file = folder.write("c.json", cluster.dump());
  const Json run =
      simulated_run({"--policy", "gpipe", "--profile", profile, "--cluster", file, "--stages", "2",
                     "--micro-batches", "1", "--mini-batches", "1", "--what-if"});
  CHECK(run["makespan_ns"] == 6'000'000 + 2'200'000);
  CHECK(row(run, "shared link nic")["makespan_ns"] == 6'000'000 + 2'000'000);
  CHECK(row(run, "link 0<>1")["makespan_speed_up"] == 0.0);
}

TEST_CASE("what-if: stages that share a device have rows of their own") {
  const Json run = simulated_run(
      {"--policy", "gpipe", "--placement", "0,1,1,0", "--micro-batches", "4", "--what-if"});
  const double device = row(run, "device 1 (stages 1, 2)")["makespan_speed_up"].get<double>();
  const double stage = row(run, "stage 1")["makespan_speed_up"].get<double>();
  CHECK(stage > 0.0);
  CHECK(device > stage);
}

TEST_CASE("what-if: rows stand by speed-up, and the table names what makes no difference") {
  const std::vector<std::string> command = {"simulate", "--policy",        "gpipe", "--stages",
                                            "4",        "--micro-batches", "2",     "--what-if"};
  std::vector<std::string> json = {command.begin() + 1, command.end()};
  double last = 1.0;
  for (const Json& r : simulated_run(json)["what_if"]["rows"]) {
    CHECK(r["steady_speed_up"] <= last);
    last = r["steady_speed_up"];
  }
  const Answer table = run_xpipe(command);
  CHECK(table.status == 0);
  CHECK(table.out.find("if one thing was 10 % faster") != std::string::npos);
  CHECK(table.out.find("no difference: link 0<>1, link 1<>2, link 2<>3") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
