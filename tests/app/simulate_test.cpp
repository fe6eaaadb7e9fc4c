// The commands of the simulator's side, from the outside: closed forms, files, statuses.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

Json json_of(const Answer& answer) {
  REQUIRE_MESSAGE(answer.status == 0, answer.err);
  return Json::parse(answer.out);
}

TEST_CASE("xpipe simulate: runs hold every combination, policies outermost, as given") {
  const Json document = json_of(run_xpipe({"simulate", "--policy", "xpipe,pipedream,gpipe",
                                           "--stages", "4", "--micro-batches", "4,1", "--json"}));
  CHECK(document["format"] == "xpipe.simulation");
  std::vector<std::string> seen;
  for (const Json& run : document["runs"]) {
    seen.push_back(run["policy"].get<std::string>() + " " +
                   std::to_string(run["asked_micro_batches"].get<int>()) + " " +
                   std::to_string(run["micro_batches"].get<int>()));
  }
  CHECK(seen == std::vector<std::string>{"xpipe 4 4", "xpipe 1 1", "pipedream 4 1", "pipedream 1 1",
                                         "gpipe 4 4", "gpipe 1 1"});
}

TEST_CASE("xpipe simulate: XPipe over GPipe is (T + D - 1) / T in steady state") {
  // t_async = T (f + b), t_gpipe = (T + D - 1)(f + b); methods.md 8
  const std::int64_t f_plus_b = 3'000'000;
  for (const int stages : {1, 2, 4, 8}) {
    for (const int t : {1, 2, 4, 8}) {
      const Json document =
          json_of(run_xpipe({"simulate", "--policy", "xpipe,gpipe", "--stages",
                             std::to_string(stages), "--micro-batches", std::to_string(t),
                             "--forward-us", "1000", "--backward-us", "2000", "--json"}));
      CAPTURE(stages);
      CAPTURE(t);
      CHECK(document["runs"][0]["steady_ns_per_mini_batch"] == t * f_plus_b);
      CHECK(document["runs"][1]["steady_ns_per_mini_batch"] == (t + stages - 1) * f_plus_b);
      CHECK(document["runs"][1]["makespan_ns"] == 8 * (t + stages - 1) * f_plus_b);
      CHECK(document["runs"][1]["bubble_of_total"].get<double>() ==
            doctest::Approx((stages - 1.0) / (t + stages - 1.0)).epsilon(1e-12));
    }
  }
}

TEST_CASE("xpipe simulate: a unit of a whole mini-batch costs what its T micro-batches cost") {
  const Json document = json_of(run_xpipe(
      {"simulate", "--policy", "pipedream", "--stages", "2", "--micro-batches", "4", "--json"}));
  CHECK(document["runs"][0]["steady_ns_per_mini_batch"] == 4 * 3'000'000);
}

TEST_CASE("xpipe simulate: with latency the differences alternate, and the period says so") {
  // f/b = 1/2 ms, 1 ms latency, D = 4, T = 1: 3, 5, 5, 5, 3, ... ms (design.md §10)
  const Json run =
      json_of(run_xpipe({"simulate", "--policy", "xpipe", "--stages", "4", "--micro-batches", "1",
                         "--latency-us", "1000", "--json"}))["runs"][0];
  CHECK(run["steady_period"] == 4);
  CHECK(run["steady_period_ns"] == 18'000'000);
  CHECK(run["steady_ns_per_mini_batch"] == 4'500'000);
}

TEST_CASE("xpipe simulate: fewer devices, recomputes and waiting sends change the result (A6)") {
  const auto makespan = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "simulate", "--policy",        "gpipe", "--stages",       "4",
        "--json",   "--micro-batches", "4",     "--mini-batches", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_of(run_xpipe(arguments))["runs"][0]["makespan_ns"].get<std::int64_t>();
  };
  // f/b = 1/2 ms: (T + P - 1)(f + b) D / P on P devices that hold D / P stages each, whose forwards
  // and backwards stay together
  CHECK(makespan({}) == 21'000'000);
  CHECK(makespan({"--devices", "4"}) == 21'000'000);
  CHECK(makespan({"--devices", "1"}) == 48'000'000);
  CHECK(makespan({"--placement", "0,0,0,0"}) == 48'000'000);
  CHECK(makespan({"--devices", "2"}) < 48'000'000);
  CHECK(makespan({"--devices", "2"}) >= 30'000'000);
  CHECK(makespan({"--recompute", "stage"}) == 7 * 4'000'000 - 3 * 1'000'000);
  CHECK(makespan({"--latency-us", "100", "--sends", "rendezvous"}) >=
        makespan({"--latency-us", "100"}));
  CHECK(makespan({"--replicas", "2,2,2,2"}) == (4 / 2 + 4 - 1) * 3'000'000);
}

TEST_CASE(
    "xpipe simulate: sends that block each other are status 4, with both devices' tasks (A2)") {
  const ScratchFolder folder;
  const std::string file = folder.path("both.tasks");
  REQUIRE(run_xpipe({"schedule", "--policy", "pipedream", "--stages", "2", "--mini-batches", "3",
                     "-o", file})
              .status == 0);
  CHECK(run_xpipe({"simulate", "--schedule", file}).status == 0);
  CHECK(run_xpipe({"simulate", "--schedule", file, "--sends", "rendezvous"}).status == 0);
  const Answer blocked = run_xpipe({"simulate", "--schedule", file, "--sends", "blocking"});
  CHECK(blocked.status == 4);
  CHECK(blocked.out.empty());
  for (const char* part : {"deadlock", "device 0: 0SEND_F1", "device 1: 1SEND_B0", "fix"}) {
    CHECK_MESSAGE(blocked.err.find(part) != std::string::npos, blocked.err);
  }
}

TEST_CASE("xpipe schedule: a CSV with replicas is refused before it is written") {
  const ScratchFolder folder;
  const Answer answer = run_xpipe({"schedule", "--policy", "gpipe", "--replicas", "2,1",
                                   "--micro-batches", "2", "-o", folder.path("plan.csv")});
  CHECK(answer.status == 2);
  CHECK(answer.err.find("PyTorch's CSV knows no replicas") != std::string::npos);
  CHECK(folder.list().empty());
}

TEST_CASE("xpipe simulate: the document carries the keys of the contract") {
  const Json run = json_of(run_xpipe({"simulate", "--policy", "xpipe", "--stages", "2",
                                      "--micro-batches", "2", "--json"}))["runs"][0];
  for (const char* key :
       {"policy", "options", "stages", "micro_batches", "mini_batches", "tasks", "makespan_ns",
        "steady_ns_per_mini_batch", "samples_per_s", "bubble_of_total", "bubble_of_ideal",
        "bubble_of_longest", "devices", "staleness", "critical_path"}) {
    CHECK_MESSAGE(run.contains(key), key);
  }
  for (const char* key : {"device", "busy_ns", "utilization", "peak_memory_bytes"}) {
    CHECK_MESSAGE(run["devices"][0].contains(key), key);
  }
  for (const char* key : {"stage", "forward_min", "forward_max", "backward_min", "backward_max",
                          "versions_held", "predict_forward", "predict_backward"}) {
    CHECK_MESSAGE(run["staleness"][0].contains(key), key);
  }
  for (const char* key : {"task", "start_ns", "end_ns"}) {
    CHECK_MESSAGE(run["critical_path"][0].contains(key), key);
  }
  CHECK(run["options"]["rounding"] == "floor");
}

TEST_CASE("xpipe simulate: the same command prints the same bytes") {
  const std::vector<std::string> command = {"simulate", "--policy", "xpipe,spectrain",
                                            "--stages", "3",        "--micro-batches",
                                            "1,2",      "--json"};
  CHECK(run_xpipe(command).out == run_xpipe(command).out);
}

TEST_CASE("xpipe: schedule, check, simulate and compare pass files to each other") {
  const ScratchFolder folder;
  for (const char* form : {"json", "tasks"}) {
    const std::string file = folder.path(std::string("schedule.") + form);
    REQUIRE(run_xpipe({"schedule", "--policy", "xpipe", "--stages", "3", "--micro-batches", "2",
                       "--mini-batches", "4", "-o", file})
                .status == 0);
    const Answer check = run_xpipe({"check", file});
    CHECK_MESSAGE(check.status == 0, check.err);
    CHECK(check.out.find("no faults") != std::string::npos);
    const std::string trace = folder.path(std::string("trace-") + form + ".json");
    CHECK(run_xpipe({"simulate", "--schedule", file, "--trace", trace}).status == 0);
    CHECK(run_xpipe({"check", trace}).status == 0);
  }
  CHECK(read_all(folder.path("trace-json.json")) == read_all(folder.path("trace-tasks.json")));
  const Json compared = json_of(run_xpipe(
      {"compare", folder.path("trace-json.json"), folder.path("trace-tasks.json"), "--json"}));
  CHECK(compared["format"] == "xpipe.compare");
  CHECK(compared["makespan_ratio"] == 1.0);
}

TEST_CASE("xpipe compare: timelines of different schedules are refused, naming the tasks") {
  const ScratchFolder folder;
  for (const char* policy : {"xpipe", "gpipe"}) {
    REQUIRE(run_xpipe({"simulate", "--policy", policy, "--stages", "2", "--micro-batches", "2",
                       "--trace", folder.path(std::string(policy) + ".json")})
                .status == 0);
  }
  const Answer answer =
      run_xpipe({"compare", folder.path("xpipe.json"), folder.path("gpipe.json")});
  CHECK(answer.status == 3);
  CHECK(answer.out.empty());
}

TEST_CASE("xpipe check: 3 for what cannot be read, 4 for what reads and is not legal") {
  const ScratchFolder folder;
  const std::string good = run_xpipe({"schedule", "--policy", "gpipe", "--stages", "2",
                                      "--micro-batches", "1", "--mini-batches", "1"})
                               .out;
  const auto edited = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };

  struct Case {
    const char* name;
    std::string content;
    int status;
    const char* said;
  };

  const std::vector<Case> cases = {
      {"good.tasks", good, 0, ""},
      {"token.tasks", edited("0F0[s0:v0]", "0F0xyz"), 3, "line"},
      {"version.tasks", edited("0B0[s0:v0]", "0B0[s0:v3]"), 4, "version-mismatch"},
      {"empty.json", "{}", 3, "without a \"format\""},
      {"broken.json", "{\"format\": \"xpipe.schedule\",", 3, "line 1"},
      {"rows.csv", "0F0,0B0\n", 3, "not read"},
      {"noise.bin", std::string("\xff\xfe\x00\x01", 4), 3, ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string file = folder.write(c.name, c.content);
    const Answer answer = run_xpipe({"check", file});
    CHECK(answer.status == c.status);
    CHECK_MESSAGE(answer.err.find(c.said) != std::string::npos, answer.err);
    const Json document = Json::parse(run_xpipe({"check", file, "--json"}).out);
    CHECK(document["legal"] == (c.status == 0));
    CHECK(document["diagnostics"].empty() == (c.status == 0));
  }
  CHECK(run_xpipe({"check", folder.path("missing.json")}).status == 3);
}

TEST_CASE("xpipe schedule: the CSV of an asynchronous policy says what it loses") {
  const ScratchFolder folder;
  const std::string csv = folder.path("s.csv");
  const Answer gpipe = run_xpipe({"schedule", "--policy", "gpipe", "--stages", "2",
                                  "--micro-batches", "2", "--mini-batches", "1", "-o", csv});
  CHECK(gpipe.status == 0);
  CHECK(gpipe.err.empty());
  CHECK(read_all(csv) == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  const Answer xpipe = run_xpipe({"schedule", "--policy", "xpipe", "--stages", "2",
                                  "--micro-batches", "1", "--mini-batches", "4", "-o", csv});
  CHECK(xpipe.status == 0);
  CHECK(xpipe.err.find("order only") != std::string::npos);
}

TEST_CASE("xpipe simulate: without --micro-batches it says which number it took") {
  const Answer answer = run_xpipe({"simulate", "--policy", "gpipe", "--stages", "4"});
  CHECK(answer.status == 0);
  CHECK(answer.err.find("--micro-batches") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
