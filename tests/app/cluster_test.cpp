// Clusters by name and by file, their limits, and how they are shown.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/arguments.h"
#include "app/cluster_files.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ir/cluster_json.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Field case E5's U(4): 10 MB of activations and 1000 bytes of weights a layer.
std::string four_layers() {
  Json layers = Json::array();
  for (int i = 0; i < 4; ++i) {
    layers.push_back({{"name", "layer" + std::to_string(i)},
                      {"forward_us", 1000},
                      {"backward_us", 2000},
                      {"output_bytes", 1'000'000},
                      {"saved_bytes", 10'000'000},
                      {"parameter_bytes", 1000}});
  }
  return Json{{"format", "xpipe.profile"}, {"version", 1}, {"samples", 1}, {"layers", layers}}
      .dump();
}

TEST_CASE("xpipe clusters: each is read, says where its figures are from, and is the tree's file") {
  const std::vector<std::string> expected = {"dgx-1-v100", "dgx-2",        "dgx-a100",
                                             "dgx-h100",   "ethernet-10g", "ethernet-25g"};
  std::vector<std::string> names;
  for (const app::NamedCluster& named : app::named_clusters()) {
    CAPTURE(named.name);
    names.emplace_back(named.name);
    const auto cluster = ir::cluster_from_json(named.text, std::string(named.name));
    REQUIRE_MESSAGE(cluster.ok(), (cluster.ok() ? "" : cluster.error().to_string()));
    CHECK(has(cluster.value().provenance, "data sheet"));
    CHECK(has(cluster.value().provenance, "practical figure"));
    CHECK(named.text == read_all(in_tree("examples/clusters/" + names.back() + ".json")));
    const auto again = ir::cluster_from_json(ir::cluster_to_json(cluster.value()), "again");
    REQUIRE(again.ok());
    CHECK(again.value() == cluster.value());
    for (const ir::DeviceSpec& device : cluster.value().devices) {
      CHECK(device.memory_bytes.has_value());
      CHECK(device.memory_bandwidth_bytes_per_s.has_value());
    }
  }
  CHECK(names == expected);
}

TEST_CASE("xpipe clusters: every two devices of a known cluster can exchange tensors") {
  for (const app::NamedCluster& named : app::named_clusters()) {
    const ir::Cluster cluster = ir::cluster_from_json(named.text, "").value();
    const std::size_t devices = cluster.devices.size();
    CAPTURE(named.name);
    CHECK(cluster.links.size() == devices * (devices - 1) / 2);
  }
}

TEST_CASE("xpipe clusters: a V100 of a DGX-1 has six NVLinks") {
  for (const auto& [name, machines] :
       std::vector<std::pair<std::string, int>>{{"dgx-1-v100", 1}, {"ethernet-25g", 2}}) {
    const ir::Cluster cluster = app::read_cluster(name).value();
    std::vector<double> out(cluster.devices.size(), 0.0);
    for (const ir::Link& link : cluster.links) {
      if (link.via.empty()) {
        out[ir::index_of(link.from)] += *link.spec.bandwidth_bytes_per_s;
        out[ir::index_of(link.to)] += *link.spec.bandwidth_bytes_per_s;
      }
    }
    CHECK(out == std::vector<double>(8 * static_cast<std::size_t>(machines), 6 * 25e9));
  }
}

TEST_CASE("xpipe clusters: lists them, prints one to edit, and names those that there are") {
  const Answer list = run_xpipe({"clusters"});
  CHECK(list.status == 0);
  CHECK(has(list.out, "dgx-a100"));
  const Answer json = run_xpipe({"clusters", "--json"});
  REQUIRE(json.status == 0);
  CHECK(Json::parse(json.out)["clusters"].size() == 6);
  const Answer one = run_xpipe({"clusters", "ethernet-10g"});
  CHECK(one.out == read_all(in_tree("examples/clusters/ethernet-10g.json")));
  const Answer none = run_xpipe({"clusters", "dgx"});
  CHECK(none.status == 2);
  CHECK(has(none.err, "expected one of dgx-1-v100"));
}

TEST_CASE("xpipe simulate --cluster: a name, a file, and what is neither") {
  const std::vector<std::string> base = {"simulate", "--policy", "xpipe", "--micro-batches", "2"};
  const auto with = [&base](const std::string& cluster) {
    std::vector<std::string> words = base;
    words.insert(words.end(), {"--json", "--cluster", cluster});
    return run_xpipe(words);
  };
  const ScratchFolder scratch;
  const Answer named = with("dgx-a100");
  const Answer file = with(scratch.write("mine.json", run_xpipe({"clusters", "dgx-a100"}).out));
  REQUIRE_MESSAGE(named.status == 0, named.err);
  CHECK(file.out == named.out);
  CHECK(Json::parse(named.out)["runs"][0]["stages"] == 8);
  const Answer neither = with("dgx-a10");
  CHECK(neither.status == 3);
  CHECK(has(neither.err, "dgx-1-v100, dgx-2, dgx-a100"));
  CHECK(has(neither.err, "did you mean 'dgx-a100'?"));
}

TEST_CASE("app: a file with the name of a known cluster is neither taken nor passed over") {
  const ScratchFolder scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(scratch.write("dgx-2", "{}")).parent_path());
  const auto both = app::cluster_text("dgx-2");
  const auto file = app::cluster_text("./dgx-2");
  std::filesystem::current_path(before);
  REQUIRE_FALSE(both.ok());
  CHECK(both.error().kind == ir::ErrorKind::Usage);
  CHECK(has(both.error().to_string(), "write ./dgx-2 for the file"));
  CHECK(file.value() == "{}");
}

TEST_CASE("xpipe simulate --memory-limit: what does not fit ends with status 4 (field case E5)") {
  const ScratchFolder scratch;
  const std::string profile = scratch.write("u4.json", four_layers());
  const auto limited = [&](const std::string& limit) {
    return run_xpipe({"simulate", "--policy", "xpipe", "--set", "predict=none", "--profile",
                      profile, "--batch-size", "8", "--stages", "4", "--micro-batches", "8",
                      "--mini-batches", "1", "--memory-limit", limit});
  };
  CHECK(limited("45MB").status == 0);
  const Answer mega = limited("35MB");
  CHECK(mega.status == 4);
  CHECK(mega.out.empty());
  CHECK(has(mega.err, "stage 0"));
  CHECK(has(mega.err, "limit is 35000000"));
  CHECK(has(mega.err, "activations 40000000"));
  CHECK_FALSE(has(mega.err, "stage 1"));
  const Answer mebi = limited("35MiB");
  CHECK(mebi.status == 4);
  CHECK(has(mebi.err, "36700160"));
  const Answer list = limited("45MB,35MB,25MB,9MB");
  CHECK(list.status == 4);
  CHECK(has(list.err, "stage 3"));
  CHECK(has(list.err, "9000000"));
  CHECK_FALSE(has(list.err, "stage 0"));
  CHECK(limited("45MB,35MB").status == 2);
  const Answer slip = limited("45mb");
  CHECK(slip.status == 2);
  CHECK(has(slip.err, "'45mb' is none"));
}

TEST_CASE("xpipe simulate: the cluster's own memory is a limit, too") {
  const ScratchFolder scratch;
  const std::string profile = scratch.write("u4.json", four_layers());
  const std::string cluster = scratch.write(
      "c.json",
      R"({"format": "xpipe.cluster", "version": 1, "default_link": {}, "devices": [{}, {},
          {"memory_bytes": 15000000}, {}]})");
  const std::vector<std::string> words = {"simulate", "--policy",     "gpipe", "--profile",
                                          profile,    "--batch-size", "4",     "--micro-batches",
                                          "4",        "--cluster",    cluster};
  const Answer without = run_xpipe(words);
  CHECK(without.status == 4);
  CHECK(has(without.err, "device 2, stage 2"));
  std::vector<std::string> raised = words;
  raised.insert(raised.end(), {"--memory-limit", "1GB"});
  CHECK(run_xpipe(raised).status == 0);
  std::vector<std::string> recomputed = words;
  recomputed.insert(recomputed.end(), {"--recompute", "stage"});
  CHECK(run_xpipe(recomputed).status == 0);
  // Three inputs of 1 MB that wait, and 10 MB of the micro-batch that runs.
  recomputed.insert(recomputed.end(), {"--memory-limit", "13MB"});
  const Answer tight = run_xpipe(recomputed);
  CHECK(tight.status == 4);
  CHECK(has(tight.err, "activations 13000000"));
}

TEST_CASE("xpipe simulate --verbose: the cluster as it was read goes to stderr, with units") {
  const std::vector<std::string> words = {
      "simulate",     "--policy", "xpipe",           "--cluster",
      "ethernet-10g", "--json",   "--micro-batches", "2"};
  std::vector<std::string> verbose = words;
  verbose.emplace_back("--verbose");
  const Answer quiet = run_xpipe(words);
  const Answer loud = run_xpipe(verbose);
  CHECK(loud.out == quiet.out);
  for (const char* part : {"bandwidth_bytes_per_s", "latency_us", "memory_bytes", "1250000000",
                           "nic-a, nic-b", "first-come", "ring", "SOSP'19", "full"}) {
    CHECK_MESSAGE(has(loud.err, part), part);
    CHECK_FALSE(has(quiet.err, part));
  }
}

TEST_CASE("app: sizes have units of 1000 or of 1024, and nothing else") {
  using app::parse_byte_size;
  CHECK(parse_byte_size("35MB") == 35'000'000);
  CHECK(parse_byte_size("35MiB") == 36'700'160);
  CHECK(parse_byte_size("40000000") == 40'000'000);
  CHECK(parse_byte_size("7B") == 7);
  CHECK(parse_byte_size("0") == 0);
  CHECK(parse_byte_size("1.5GiB") == 1'610'612'736);
  CHECK(parse_byte_size("0.0000015MB") == 2);  // half up
  CHECK(parse_byte_size("80GB") == 80'000'000'000);
  CHECK(parse_byte_size("8388607TiB") == 8'388'607LL << 40);
  for (const char* word : {"", "MB", "-1MB", "35 MB", "35mb", "35MBs", "1e3MB", "1.2.3MB", ".5MB",
                           "9300000TB", "99999999999999999999", "nan", "1.", "0x10"}) {
    CHECK_MESSAGE(parse_byte_size(word) == std::nullopt, std::string(word));
  }
}

}  // namespace
}  // namespace xpipe::app_test
