// xpipe plan as a user has it: plans that can be worked out by hand, field cases B1 to B4, memory,
// and what it says when nothing fits.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

/// Layers that feed each other; forward and backward of 1 and 2 of `us` microseconds each.
std::string toy_profile(const std::vector<int>& us,
                        long output_bytes,
                        long parameter_bytes,
                        long saved_bytes,
                        int samples = 8) {
  Json layers = Json::array();
  for (std::size_t l = 0; l < us.size(); ++l) {
    layers.push_back({{"name", "layer" + std::to_string(l)},
                      {"forward_us", us[l]},
                      {"backward_us", 2 * us[l]},
                      {"output_bytes", output_bytes},
                      {"saved_bytes", saved_bytes},
                      {"parameter_bytes", parameter_bytes}});
  }
  return Json{{"format", "xpipe.profile"}, {"version", 1},       {"name", "toy"},
              {"provenance", "synthetic"}, {"samples", samples}, {"layers", layers}}
      .dump();
}

/// Devices of these speeds; memory in bytes, 0 for no limit; bandwidth in bytes/s, 0 for infinite.
std::string toy_cluster(const std::vector<double>& speeds, long memory, double bandwidth) {
  Json devices = Json::array();
  for (std::size_t d = 0; d < speeds.size(); ++d) {
    devices.push_back({{"name", "d" + std::to_string(d)}, {"speed", speeds[d]}});
    if (memory > 0) {
      devices.back()["memory_bytes"] = memory;
    }
  }
  Json link = {{"latency_us", 0}};
  if (bandwidth > 0) {
    link["bandwidth_bytes_per_s"] = bandwidth;
  }
  return Json{{"format", "xpipe.cluster"},
              {"version", 1},
              {"name", "toy cluster"},
              {"devices", devices},
              {"default_link", link}}
      .dump();
}

struct Toy {
  ScratchFolder folder;
  std::string profile;
  std::string cluster;

  Toy(const std::string& profile_json, const std::string& cluster_json)
      : profile(folder.write("profile.json", profile_json)),
        cluster(folder.write("cluster.json", cluster_json)) {}

  [[nodiscard]] Answer run(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", "--profile", profile, "--cluster", cluster});
    return run_xpipe(more);
  }

  [[nodiscard]] Json plan(std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    const Answer answer = run(std::move(more));
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return Json::parse(answer.out);
  }
};

std::vector<std::size_t> counts_of(const Json& plan) {
  std::vector<std::size_t> counts;
  for (const Json& stage : plan["stages"]) {
    counts.push_back(stage["layers"].size());
  }
  return counts;
}

TEST_CASE("plan: equal layers without communication: every device computes all the time") {
  const Toy toy(toy_profile({1000, 1000, 1000, 1000}, 0, 1000, 0), toy_cluster({1, 1, 1, 1}, 0, 0));
  const Json plan = toy.plan();
  CHECK(plan["format"] == "xpipe.plan");
  CHECK(counts_of(plan) == std::vector<std::size_t>{1, 1, 1, 1});
  // 8 samples take 12 ms on one device: 4 devices make 8 in 3 ms, without a flush.
  CHECK(plan["samples_per_s"].get<double>() == doctest::Approx(8 / 0.003));
  CHECK(plan["ideal_samples_per_s"].get<double>() == doctest::Approx(8 / 0.003));
  CHECK(plan["limit"]["kind"] == "compute");
  CHECK(plan["exact"] == true);
  // xpipe, pipedream and spectrain all make it; T = 4 is the fewest with staleness 1.
  CHECK(plan["policy"] == "xpipe");
  CHECK(plan["micro_batches"] == 4);
  CHECK(plan["bottleneck_ns"] == 3'000'000 / 4);
  for (std::size_t k = 0; k < 4; ++k) {
    const Json& stage = plan["stages"][k];
    CHECK(stage["stage"] == k);
    CHECK(stage["devices"] == Json::array({k}));
    CHECK(stage["time_ns"] == 750'000);
    CHECK(stage["parameter_bytes"] == 1000);
    CHECK(stage["peak_memory_bytes"].get<long>() > 1000);
  }
  CHECK(toy.run({"--json"}).out == toy.run({"--json"}).out);
}

TEST_CASE("plan: among synchronous policies the rate is the textbook's (T + D - 1) / T") {
  const Toy toy(toy_profile({1000, 1000}, 0, 0, 0), toy_cluster({1, 1}, 0, 0));
  const Json plan = toy.plan({"--policy", "gpipe", "--stages", "2"});
  CHECK(plan["micro_batches"] == 8);  // more micro-batches, less bubble
  CHECK(plan["samples_per_s"].get<double>() == doctest::Approx(8 / (0.003 * 9 / 8)));
  CHECK(plan["limit"]["kind"] == "waiting");
  CHECK(plan["limit"]["text"].get<std::string>().find("drains") != std::string::npos);
  CHECK(plan["candidates"].size() == 4);  // T = 1, 2, 4, 8
}

TEST_CASE("plan: a device of twice the speed is given twice the layers") {
  const Toy toy(toy_profile({1000, 1000, 1000, 1000, 1000, 1000}, 0, 0, 0),
                toy_cluster({2, 1}, 0, 0));
  const Json plan = toy.plan({"--stages", "2"});
  CHECK(counts_of(plan) == std::vector<std::size_t>{4, 2});
  CHECK(plan["exact"] == true);
}

TEST_CASE("plan: field cases B1 and B2: as equal as can be, every layer placed once") {
  struct Row {
    std::size_t layers;
    std::size_t stages;
    std::vector<std::size_t> counts;
  };

  for (const Row& row : {Row{5, 4, {2, 1, 1, 1}}, Row{38, 8, {5, 5, 5, 5, 5, 5, 4, 4}},
                         Row{30, 4, {8, 8, 7, 7}}, Row{10, 3, {4, 3, 3}}}) {
    const Toy toy(toy_profile(std::vector<int>(row.layers, 1000), 0, 0, 0),
                  toy_cluster(std::vector<double>(row.stages, 1.0), 0, 0));
    const Json plan = toy.plan(
        {"--policy", "xpipe", "--micro-batches", "4", "--stages", std::to_string(row.stages)});
    CHECK(counts_of(plan) == row.counts);
    std::size_t next = 0;
    for (const Json& stage : plan["stages"]) {
      for (const Json& layer : stage["layers"]) {
        CHECK(layer == "layer" + std::to_string(next++));
      }
    }
    CHECK(next == row.layers);
  }
  const Toy toy(toy_profile({1, 1, 1}, 0, 0, 0), toy_cluster({1, 1, 1, 1}, 0, 0));
  const Answer answer = toy.run({"--stages", "4"});
  CHECK(answer.status == 2);
  CHECK(answer.err.find("3 layers") != std::string::npos);
  CHECK(answer.err.find("4 stages") != std::string::npos);
  CHECK(answer.err.find("--stages") != std::string::npos);
}

TEST_CASE("plan: field case B3: fast and infinite links split alike, twenty times") {
  const std::string profile = toy_profile({1000, 1000, 1000, 1000, 8000}, 1000000, 0, 0);
  std::string first;
  for (const double bandwidth : {21474836480.0, 0.0}) {
    const Toy toy(profile, toy_cluster({1, 1}, 0, bandwidth));
    for (int i = 0; i < 10; ++i) {
      const Json plan = toy.plan({"--stages", "2", "--policy", "xpipe", "--micro-batches", "1"});
      CHECK(counts_of(plan) == std::vector<std::size_t>{4, 1});
      const std::string text = plan["stages"][0]["layers"].dump() + plan["limit"]["kind"].dump();
      first = first.empty() ? text : first;
      CHECK(text == first);
    }
  }
}

TEST_CASE("plan: field case B4: a partition by hand is taken, or the layer at fault is named") {
  const Toy toy(toy_profile(std::vector<int>(8, 1000), 0, 0, 0), toy_cluster({1, 1}, 0, 0));
  const Json plan = toy.plan({"--partition", "3,5"});
  CHECK(counts_of(plan) == std::vector<std::size_t>{3, 5});
  CHECK(plan["exact"] == false);
  CHECK(plan["exact_reason"].get<std::string>().find("--partition") != std::string::npos);

  struct Row {
    std::vector<std::string> options;
    std::vector<std::string> said;
  };

  for (const Row& row :
       {Row{{"--partition", "3,4"}, {"layer 7"}}, Row{{"--partition", "4,5"}, {"layer 8"}},
        Row{{"--partition", "3,5", "--stages", "3"}, {"--stages 3", "2"}},
        Row{{"--partition", "3,3,2"}, {"3 stages", "2 devices"}}}) {
    const Answer answer = toy.run(row.options);
    CHECK(answer.status == 2);
    CHECK(answer.out.empty());
    for (const std::string& word : row.said) {
      CHECK_MESSAGE(answer.err.find(word) != std::string::npos, word, " in ", answer.err);
    }
  }
}

TEST_CASE("plan: memory decides the policy, and what would be faster is told") {
  // A layer of 1 MB of parameters a stage, 1 MB of activations a mini-batch. On stage 0 PipeDream
  // holds 2 versions + gradient + 2 of Adam's + 2 activations = 7 MB, GPipe with T = 1 5 MB.
  const std::string profile = toy_profile({1000, 1000}, 0, 1000000, 1000000);
  const Toy roomy(profile, toy_cluster({1, 1}, 7000000, 0));
  const Toy tight(profile, toy_cluster({1, 1}, 6999999, 0));
  const std::vector<std::string> options = {"--stages",        "2", "--policy", "pipedream,gpipe",
                                            "--micro-batches", "1"};
  CHECK(roomy.plan(options)["policy"] == "pipedream");
  const Json plan = tight.plan(options);
  CHECK(plan["policy"] == "gpipe");
  CHECK(plan["candidates"][1]["policy"] == "pipedream");
  CHECK(plan["candidates"][1]["fits"] == false);
  CHECK(plan["candidates"][1]["shortfall_bytes"] == 1);
  const Answer text = tight.run(options);
  CHECK(text.out.find("pipedream on 2 stages with T = 1 would make") != std::string::npos);
}

TEST_CASE("plan: when nothing fits, status 4, the nearest miss and what it lacks") {
  const Toy toy(toy_profile({1000, 1000}, 0, 1000000, 1000000), toy_cluster({1, 1}, 3000000, 0));
  const Answer answer = toy.run({"--policy", "gpipe", "--micro-batches", "1"});
  CHECK(answer.status == 4);
  CHECK(answer.out.empty());
  // 1 MB each of weights, gradient and activations, 2 MB of Adam's moments.
  for (const char* word : {"device 0", "device 1", "5000.0 kB", "3000.0 kB", "2000.0 kB too much",
                           "2000.0 kB optimizer", "nearest of"}) {
    CHECK_MESSAGE(answer.err.find(word) != std::string::npos, word, " in ", answer.err);
  }
}

TEST_CASE("plan: the cut goes where simulation is fastest, and no single move is faster") {
  const Toy toy(toy_profile({3000, 1000, 2000, 1000, 2500, 1500}, 4000000, 1000, 0),
                toy_cluster({1, 1, 1}, 0, 1e9));
  const std::vector<std::string> run = {"--policy", "xpipe", "--micro-batches", "2"};
  std::vector<std::string> searched = run;
  searched.insert(searched.end(), {"--stages", "3"});
  const Json plan = toy.plan(searched);
  const double best = plan["samples_per_s"];
  for (int a = 1; a <= 4; ++a) {
    for (int b = 1; a + b <= 5; ++b) {
      std::vector<std::string> by_hand = run;
      by_hand.insert(by_hand.end(), {"--partition", std::to_string(a) + "," + std::to_string(b) +
                                                        "," + std::to_string(6 - a - b)});
      CHECK(toy.plan(by_hand)["samples_per_s"].get<double>() <= best * 1.001);
    }
  }
}

TEST_CASE("plan: its rate is the one that xpipe simulate finds for the same set-up") {
  const Toy toy(toy_profile({3000, 1000, 2000, 1000}, 4000000, 1000, 0),
                toy_cluster({1, 1}, 0, 1e9));
  const Json plan = toy.plan({"--stages", "2"});
  const auto counts = counts_of(plan);
  const Answer simulated =
      run_xpipe({"simulate", "--profile", toy.profile, "--cluster", toy.cluster, "--policy",
                 plan["policy"].get<std::string>(), "--micro-batches",
                 std::to_string(plan["micro_batches"].get<int>()), "--partition",
                 std::to_string(counts[0]) + "," + std::to_string(counts[1]), "--json"});
  REQUIRE(simulated.status == 0);
  CHECK(Json::parse(simulated.out)["runs"][0]["samples_per_s"].get<double>() ==
        doctest::Approx(plan["samples_per_s"].get<double>()).epsilon(1e-9));
}

TEST_CASE("plan: over antichains, branches go where the file's order could not put them") {
  // a feeds b and d, which feed e; the file's order a b d e allows {a b | d e}, {a | b d e} and
  // {a b d | e}. Behind {a d} only 1 byte crosses beside a's own.
  Json profile = Json::parse(toy_profile({1000, 1000, 2000, 1000}, 0, 0, 0));
  const char* names[] = {"a", "b", "d", "e"};
  for (int l = 0; l < 4; ++l) {
    profile["layers"][l]["name"] = names[l];
  }
  profile["edges"] = Json::parse(R"([["a","b"],["a","d"],["b","e"],["d","e"]])");
  profile["layers"][1]["forward_us"] = 500;
  profile["layers"][1]["backward_us"] = 1000;
  const Toy toy(profile.dump(), toy_cluster({1, 1}, 0, 0));
  // Times 3000, 1500, 6000, 3000: the order's best is {a b | d e} with 9000 or {a b d | e} 10500;
  // {a d | b e} has 9000 and 4500; {a b | d e} 4500 and 9000: equal bottlenecks, equal balance.
  const Json order = toy.plan({"--stages", "2", "--policy", "xpipe", "--micro-batches", "1"});
  const Json free = toy.plan(
      {"--stages", "2", "--policy", "xpipe", "--micro-batches", "1", "--search", "antichains"});
  CHECK(order["bottleneck_ns"] == 9'000'000);
  CHECK(free["bottleneck_ns"] == 9'000'000);
  CHECK(free["exact"] == true);
  const std::string written = toy.folder.path("reordered.json");
  CHECK(toy.run({"--stages", "2", "--search", "antichains", "--write-profile", written}).status ==
        0);
  CHECK(run_xpipe({"check", written}).status == 0);
}

TEST_CASE("plan: PipeDream's program replicates, in its own terms, by either recurrence") {
  // Two layers of 3 ms and no parameters: replicas cost nothing, so two machines halve the whole.
  const Toy toy(toy_profile({1000, 1000}, 1000, 0, 0), toy_cluster({1, 1}, 0, 1e9));
  for (const char* recurrence : {"code", "paper"}) {
    const Json plan = toy.plan({"--search", "pipedream", "--recurrence", recurrence});
    CHECK(plan["pipedream"]["recurrence"] == recurrence);
    CHECK(plan["pipedream"]["antichains"] == 2);
    CHECK(plan["pipedream"]["pipeline_s"].get<double>() == doctest::Approx(0.003));
    CHECK(plan["pipedream"]["speed_up"].get<double>() == doctest::Approx(2.0));
    CHECK(plan["stages"][0]["devices"].size() + (plan["stages"].size() > 1 ? 1 : 0) == 2);
  }
  const Json straight = toy.plan({"--search", "pipedream", "--straight"});
  CHECK(straight["simulated"] == true);
  CHECK(counts_of(straight) == std::vector<std::size_t>{1, 1});
}

TEST_CASE("plan: options that are missing, wrong or idle are refused, all at once") {
  const Toy toy(toy_profile({1, 1}, 0, 0, 0), toy_cluster({1, 1}, 0, 0));

  struct Row {
    std::vector<std::string> options;
    std::vector<std::string> said;
  };

  for (const Row& row :
       {Row{{"--stages", "3"}, {"--stages", "3", "2"}},
        Row{{"--micro-batches", "9"}, {"--micro-batches", "9", "8"}},
        Row{{"--policy", "gpip"}, {"gpip", "gpipe"}},
        Row{{"--search", "all"}, {"--search", "antichains"}},
        Row{{"--straight", "--machines", "2", "--placement", "0,1"},
            {"--straight", "--machines", "--placement"}},
        Row{{"--search", "pipedream"}, {"--level-bandwidth"}},
        Row{{"--search", "pipedream", "--level-bandwidth", "1e9x"}, {"1e9x"}},
        Row{{"--search", "pipedream", "--machines", "2,2", "--level-bandwidth", "1,1"},
            {"--machines", "4", "2"}},
        Row{{"--search", "pipedream", "--stages", "2"}, {"--stages", "--machines"}},
        Row{{"--write-profile", "no/such/folder/p.json"}, {"no/such/folder"}}}) {
    const Answer answer = toy.run(row.options);
    CHECK(answer.status == 2);
    CHECK(answer.out.empty());
    for (const std::string& word : row.said) {
      CHECK_MESSAGE(answer.err.find(word) != std::string::npos, word, " in ", answer.err);
    }
  }
  const Answer nothing = run_xpipe({"plan"});
  CHECK(nothing.status == 2);
  CHECK(nothing.err.find("--profile") != std::string::npos);
  CHECK(nothing.err.find("--cluster") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
