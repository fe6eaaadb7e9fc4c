// PipeDream's published speed-ups beside ours, from its published profiles; and GPipe's and
// torchgpipe's tables beside equal stages.
//
//   ./dev bench fidelity_pipedream       reads $XPIPE_SHARED (default ../shared)
//
// The papers name replicas, not layers: the cut is the contiguous one with the smallest bottleneck.
// Prints the Markdown tables of docs/fidelity.md, which says what each figure is and is not.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/published.h"

#include "ir/pipedream_graph.h"
#include "policies/register_all.h"
#include "scheduler/chain_planner.h"
#include "scheduler/compile.h"
#include "scheduler/layout.h"
#include "scheduler/partition.h"
#include "scheduler/stage_costs.h"
#include "scheduler/stage_terms.h"
#include "simulator/simulate.h"

namespace {

using namespace xpipe;         // NOLINT(google-build-using-namespace): a program
using namespace xpipe::bench;  // NOLINT(google-build-using-namespace)
using ir::Nanos;

/// `machines` of `gpus` each: PCIe 3.0 x16 inside (15.75 GB/s), and a NIC that they share.
ir::Cluster machines(std::uint32_t count, std::uint32_t gpus, double nic_bytes_per_s) {
  ir::Cluster cluster = scheduler::uniform_cluster(
      count * gpus, {.bandwidth_bytes_per_s = 15.75e9, .latency = 10'000});
  cluster.links.clear();
  for (std::uint32_t m = 0; m < count; ++m) {
    cluster.shared_links.push_back(
        {"nic" + std::to_string(m), {.bandwidth_bytes_per_s = nic_bytes_per_s}});
  }
  for (std::uint32_t a = 0; a < count * gpus; ++a) {
    for (std::uint32_t b = a + 1; b < count * gpus; ++b) {
      if (a / gpus != b / gpus) {
        ir::Link link{.from = ir::DeviceId{static_cast<std::uint16_t>(a)},
                      .to = ir::DeviceId{static_cast<std::uint16_t>(b)},
                      .spec = {.latency = 50'000}};
        link.via = {ir::SharedLinkId{a / gpus}, ir::SharedLinkId{b / gpus}};
        cluster.links.push_back(link);
      }
    }
  }
  return cluster;
}

const scheduler::PolicyRegistry& registry() {
  static const scheduler::PolicyRegistry all = [] {
    scheduler::PolicyRegistry registry;
    policies::register_all(registry);
    return registry;
  }();
  return all;
}

const scheduler::Policy& pipedream() {
  return *must(registry().find("pipedream"));
}

struct Pipeline {
  const ir::Profile& profile;
  const ir::Cluster& cluster;
  std::vector<std::uint32_t> replicas;  ///< by stage
  std::uint32_t batch = 1;              ///< samples of a mini-batch, on one replica

  [[nodiscard]] scheduler::Layout layout() const {
    return must(scheduler::resolve_layout(
        {.stages = static_cast<std::uint32_t>(replicas.size()), .replicas = replicas}));
  }

  [[nodiscard]] scheduler::StagedModel model(const scheduler::Partition& cut) const {
    return must(scheduler::stage_costs(profile,
                                       {.layers_per_stage = cut,
                                        .batch_size = batch,
                                        .optimizer = scheduler::OptimizerKind::SgdMomentum,
                                        .placement = layout().by_stage()},
                                       cluster));
  }

  /// Mini-batches a second in steady state, by simulation of PipeDream's policy.
  [[nodiscard]] double rate(const scheduler::Partition& cut) const {
    const scheduler::Policy& policy = pipedream();
    const scheduler::StagedModel staged = model(cut);
    std::uint32_t round = 1;
    for (const std::uint32_t r : replicas) {
      round = std::lcm(round, r);
    }
    round *= (64 + round - 1) / round;
    const auto makespan = [&](std::uint32_t mini_batches) {
      const ir::Schedule schedule =
          must(scheduler::compile(policy,
                                  {.stages = static_cast<std::uint32_t>(replicas.size()),
                                   .micro_batches = 1,
                                   .mini_batches = mini_batches,
                                   .options = {}},
                                  staged.graph, {.layout = layout()}));
      return ir::makespan(simulator::simulate(schedule, staged.costs));
    };
    return round / seconds(makespan(3 * round) - makespan(2 * round));
  }
};

/// What limits a cut, per mini-batch: the slowest stage or transfer.
double bottleneck(const Pipeline& pipeline, const scheduler::Partition& cut) {
  const scheduler::StagedModel staged = pipeline.model(cut);
  double slowest = 0;
  for (std::size_t k = 0; k < cut.size(); ++k) {
    const scheduler::StageCosts& costs = staged.costs.stages[k];
    const Nanos stage = costs.forward + costs.backward_input + costs.backward_weight +
                        costs.all_reduce + costs.step;
    slowest = std::max(slowest, seconds(stage) / pipeline.replicas[k]);
  }
  for (const scheduler::StageLink& link : staged.graph.links) {
    const auto place = pipeline.layout().by_stage();
    const ir::LinkSpec* spec = scheduler::find_link(
        staged.costs, place[ir::index_of(link.from)].front(), place[ir::index_of(link.to)].front());
    const std::uint32_t lanes = std::min(pipeline.replicas[ir::index_of(link.from)],
                                         pipeline.replicas[ir::index_of(link.to)]);
    slowest = std::max(slowest, seconds(scheduler::transfer_time(*spec, link.bytes)) / lanes);
  }
  return slowest;
}

/// The exact chain planner's cut, memory left out.
scheduler::Partition straight_cut(const Pipeline& pipeline, std::uint32_t stages) {
  ir::Cluster cluster = pipeline.cluster;
  cluster.devices.resize(stages);
  const scheduler::Promises promises = pipedream().promises(
      {.stages = stages, .options = must(scheduler::resolve_options(pipedream(), {}))});
  const auto terms = must(scheduler::stage_terms(
      pipeline.profile,
      {.batch_size = pipeline.batch, .optimizer = scheduler::OptimizerKind::SgdMomentum}, cluster,
      promises));
  const auto cuts = scheduler::cuts_of_order(pipeline.profile);
  const auto plan = must(scheduler::plan_chain({.cuts = cuts, .after = {}, .stages = terms}));
  scheduler::Partition cut;
  std::uint32_t before = 0;
  for (const std::uint32_t end : plan.ends) {
    cut.push_back(cuts[end].layers - before);
    before = cuts[end].layers;
  }
  return cut;
}

/// `cut`, as long as moving one boundary by a few layers makes the simulated rate higher: neither
/// planner nor bottleneck() knows that a NIC carries what goes both ways.
scheduler::Partition improved(const Pipeline& pipeline, scheduler::Partition cut) {
  double rate = pipeline.rate(cut);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k + 1 < cut.size(); ++k) {
      for (const int by : {-3, -2, -1, 1, 2, 3}) {
        if (static_cast<int>(cut[k]) + by < 1 || static_cast<int>(cut[k + 1]) - by < 1) {
          continue;
        }
        scheduler::Partition other = cut;
        other[k] += by;
        other[k + 1] -= by;
        if (const double other_rate = pipeline.rate(other); other_rate > rate * 1.0001) {
          rate = other_rate;
          cut = other;
          moved = true;
        }
      }
    }
  }
  return cut;
}

/// The contiguous cut with the smallest bottleneck, improved. Straight pipelines: from the exact
/// chain planner's; else every cut is looked at, so for up to four stages.
scheduler::Partition best_cut(const Pipeline& pipeline) {
  const auto stages = static_cast<std::uint32_t>(pipeline.replicas.size());
  if (std::ranges::all_of(pipeline.replicas, [](std::uint32_t r) { return r == 1; })) {
    return improved(pipeline, straight_cut(pipeline, stages));
  }
  std::optional<std::pair<double, scheduler::Partition>> best;
  scheduler::Partition cut(stages, 1);
  const auto search = [&](auto&& self, std::uint32_t stage, std::uint32_t left) -> void {
    if (stage + 1 == stages) {
      cut[stage] = left;
      const double slowest = bottleneck(pipeline, cut);
      if (!best || slowest < best->first) {
        best = {slowest, cut};
      }
      return;
    }
    for (std::uint32_t take = 1; take + (stages - 1 - stage) <= left; ++take) {
      cut[stage] = take;
      self(self, stage + 1, left - take);
    }
  };
  search(search, 0, static_cast<std::uint32_t>(pipeline.profile.layers.size()));
  return improved(pipeline, best->second);
}

std::optional<ir::Profile> network(const std::string& name, std::uint32_t samples) {
  const std::string path = shared("real/pipedream/" + name + ".graph.txt");
  const auto text = ir::read_file(path);
  if (!text.ok()) {
    std::printf("[SKIPPED] there is no %s\n", path.c_str());
    return std::nullopt;
  }
  return must(ir::pipedream_graph_from_text(text.value(), name, samples)).profile;
}

/// One published speed-up.
struct Published {
  const char* paper;
  const char* model;
  const char* network;
  std::uint32_t samples;  ///< of the profile
  std::uint32_t batch;    ///< of a mini-batch on one GPU
  std::uint32_t machines, gpus;
  double nic_bytes_per_s;
  std::vector<std::uint32_t> replicas;
  const char* text;
  bool against_data_parallel;
  double factor;
};

void print_pipedream() {
  const std::vector<Published> rows = {
      {"arXiv'18", "VGG-16", "vgg16", 128, 32, 4, 1, 3.125e9, {1, 1, 1, 1}, "1-1-1-1", false, 2.56},
      {"arXiv'18",
       "VGG-16",
       "vgg16",
       128,
       32,
       8,
       1,
       3.125e9,
       {1, 1, 1, 1, 1, 1, 1, 1},
       "1 x8",
       false,
       3.49},
      {"arXiv'18", "VGG-16", "vgg16", 128, 32, 8, 1, 3.125e9, {7, 1}, "7-1", false, 7.04},
      {"arXiv'18", "VGG-16", "vgg16", 128, 32, 8, 1, 3.125e9, {7, 1}, "7-1", true, 2.99},
      {"arXiv'18",
       "VGG-16",
       "vgg16",
       128,
       32,
       16,
       1,
       3.125e9,
       {9, 5, 1, 1},
       "9-5-1-1",
       false,
       9.86},
      {"arXiv'18", "VGG-16", "vgg16", 128, 32, 16, 1, 3.125e9, {9, 5, 1, 1}, "9-5-1-1", true, 3.0},
      {"arXiv'18", "Inception-v3", "inception_v3", 128, 32, 8, 1, 3.125e9, {8}, "DP", false, 7.66},
      {"arXiv'18",
       "Inception-v3",
       "inception_v3",
       128,
       32,
       8,
       1,
       1.25e9,
       {7, 1},
       "7-1",
       false,
       6.88},
      {"arXiv'18",
       "Inception-v3",
       "inception_v3",
       128,
       32,
       8,
       1,
       1.25e9,
       {7, 1},
       "7-1",
       true,
       1.45},
      {"SOSP'19", "VGG-16", "vgg16", 128, 64, 4, 4, 1.25e9, {15, 1}, "15-1", true, 5.28},
      {"SOSP'19", "AlexNet", "alexnet", 256, 256, 4, 4, 1.25e9, {15, 1}, "15-1", true, 4.92},
  };
  std::printf(
      "PipeDream, speed-ups.\n\n"
      "| paper | model | GPUs | network, GB/s | configuration | against | published | predicted "
      "| off by, %% | GPUs half as fast | network 4 times as fast |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Published& row : rows) {
    const auto profile = network(row.network, row.samples);
    if (!profile) {
      continue;
    }
    const auto predicted = [&](double speed, double nic_bytes_per_s) {
      ir::Cluster cluster = machines(row.machines, row.gpus, nic_bytes_per_s);
      for (ir::DeviceSpec& device : cluster.devices) {
        device.speed = speed;
      }
      const Pipeline pipeline{*profile, cluster, row.replicas, row.batch};
      const std::uint32_t others = row.against_data_parallel ? row.machines * row.gpus : 1;
      const Pipeline base{*profile, cluster, {others}, row.batch};
      return pipeline.rate(best_cut(pipeline)) / base.rate(best_cut(base));
    };
    const double as_profiled = predicted(1.0, row.nic_bytes_per_s);
    std::printf("| %s | %s | %u x %u | %.2f | %s | %s | %.2f | %.2f | %+.0f | %.2f | %.2f |\n",
                row.paper, row.model, row.machines, row.gpus, row.nic_bytes_per_s / 1e9, row.text,
                row.against_data_parallel ? "data parallel" : "1 GPU", row.factor, as_profiled,
                100 * (as_profiled / row.factor - 1), predicted(0.5, row.nic_bytes_per_s),
                predicted(1.0, 4 * row.nic_bytes_per_s));
    std::fflush(stdout);
  }
}

// ---------------------------------------------------------------------------------------------
// GPipe and torchgpipe: equal stages of one network, throughput over that of 2 stages and one
// micro-batch. Their partitions and profiles are not published.

double equal_stages_ratio(std::uint32_t stages, std::uint32_t micro_batches) {
  const auto rate = [](std::uint32_t k, std::uint32_t m) {
    const ir::Schedule schedule =
        must(scheduler::compile(*must(registry().find("gpipe")),
                                {.stages = k, .micro_batches = m, .mini_batches = 1, .options = {}},
                                scheduler::chain_of(k)));
    // One mini-batch on one device: 1 s forward, 2 s backward.
    const Nanos forward = nanos(1.0 / k / m);
    return 1 / seconds(ir::makespan(simulator::simulate(
                   schedule, scheduler::uniform_costs(k, k, forward, 2 * forward, {}))));
  };
  return rate(stages, micro_batches) / rate(2, 1);
}

void print_gpipe() {
  std::printf(
      "\nGPipe and torchgpipe, throughput over 2 partitions and 1 micro-batch.\n\n"
      "| source | model | K | M | published | equal stages | off by, %% | evidence |\n"
      "|---|---|---|---|---|---|---|---|\n");
  const auto print = [](const char* source, const Row& row, const char* ratio,
                        const std::string& evidence) {
    if (row.at("micro_batches").empty()) {
      return;  // not stated
    }
    const auto stages = static_cast<std::uint32_t>(value(row, "partitions"));
    const auto micro_batches = static_cast<std::uint32_t>(value(row, "micro_batches"));
    const double predicted = equal_stages_ratio(stages, micro_batches);
    std::printf("| %s | %s | %u | %u | %.2f | %.2f | %+.0f | %s |\n", source,
                row.at("model").c_str(), stages, micro_batches, value(row, ratio), predicted,
                100 * (predicted / value(row, ratio) - 1), evidence.c_str());
  };
  for (const Row& row : read_table("gpipe_table2.csv")) {
    print("GPipe, table 2", row, "normalised_throughput", row.at("evidence"));
  }
  for (const Row& row : read_table("torchgpipe_speed.csv")) {
    print("torchgpipe", row, "ratio", "measured by its authors");
  }
}

}  // namespace

int main() {
  try {
    print_pipedream();
    print_gpipe();
    return 0;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "fidelity_pipedream: %s\n", fault.what());
    return 1;
  }
}
