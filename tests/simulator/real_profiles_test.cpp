// Real profiles (PipeDream's graph.txt) from $XPIPE_SHARED/real: the whole way from file to
// figures, against a replay that knows no tasks, lanes or edges: only who computes what in which
// order.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "scheduler/partition.h"
#include "scheduler/stage_costs.h"
#include "simulator/long_run.h"
#include "simulator/metrics.h"
#include "simulator/simulate.h"
#include "tests/scheduler/shared_profiles.h"
#include "tests/simulator/replay_helpers.h"

namespace xpipe::tests {
namespace {

using ir::Nanos;

constexpr std::uint32_t kSamples = kSharedSamples;

/// One pass of one micro-batch.
struct Pass {
  bool forward = true;
  std::size_t micro_batch = 0;
};

/// Stage k's order, from the papers: gpipe all forwards then all backwards of each mini-batch;
/// the others D - k forwards, then a backward and a forward in turn (methods.md 1.1, 3.1, 4).
std::vector<Pass> order_of(
    const std::string& policy, std::size_t d, std::size_t k, std::size_t t, std::size_t n) {
  std::vector<Pass> order;
  if (policy == "gpipe") {
    for (std::size_t i = 0; i < n; ++i) {
      for (const bool forward : {true, false}) {
        for (std::size_t j = i * t; j < (i + 1) * t; ++j) {
          order.push_back({forward, j});
        }
      }
    }
    return order;
  }
  for (std::size_t j = 0; j < std::min(d - k, n * t); ++j) {
    order.push_back({true, j});
  }
  for (std::size_t j = 0; j < n * t; ++j) {
    order.push_back({false, j});
    if (j + d - k < n * t) {
      order.push_back({true, j + d - k});
    }
  }
  return order;
}

/// Runs the stages' orders; messages of one stage to another go one after the other.
class PaperReplay {
 public:
  explicit PaperReplay(const scheduler::StagedModel& model) : model_(model) {}

  Nanos makespan(const std::vector<std::vector<Pass>>& orders) {
    std::vector<std::size_t> next(orders.size(), 0);
    std::vector<Nanos> free(orders.size(), 0);
    Nanos last = 0;
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t k = 0; k < orders.size(); ++k) {
        while (next[k] < orders[k].size()) {
          const Pass pass = orders[k][next[k]];
          const auto ready = ready_at(k, pass);
          if (!ready.has_value()) {
            break;
          }
          const scheduler::StageCosts& costs = model_.costs.stages[k];
          free[k] = std::max(free[k], *ready) +
                    (pass.forward ? costs.forward : costs.backward_input + costs.backward_weight);
          send(k, pass, free[k]);
          last = std::max(last, free[k]);
          ++next[k];
          moved = true;
        }
      }
    }
    for (std::size_t k = 0; k < orders.size(); ++k) {
      REQUIRE(next[k] == orders[k].size());
    }
    return last;
  }

 private:
  /// Who hands a pass of stage k its inputs, by message size.
  [[nodiscard]] std::map<std::size_t, ir::Bytes> peers(std::size_t k, bool to_later) const {
    std::map<std::size_t, ir::Bytes> result;
    for (const scheduler::StageLink& link : model_.graph.links) {
      const std::size_t from = ir::index_of(link.from);
      const std::size_t to = ir::index_of(link.to);
      if (to_later ? from == k : to == k) {
        result[to_later ? to : from] = link.bytes;
      }
    }
    return result;
  }

  [[nodiscard]] std::optional<Nanos> ready_at(std::size_t k, const Pass& pass) const {
    Nanos ready = 0;
    for (const auto& [peer, bytes] : peers(k, !pass.forward)) {
      const auto arrival = arrivals_.find({peer, k, pass.forward, pass.micro_batch});
      if (arrival == arrivals_.end()) {
        return std::nullopt;
      }
      ready = std::max(ready, arrival->second);
    }
    return ready;
  }

  void send(std::size_t k, const Pass& pass, Nanos at) {
    for (const auto& [peer, bytes] : peers(k, pass.forward)) {
      Nanos& free = link_free_[{k, peer}];
      Nanos latency = 0;
      Nanos takes = 0;
      for (const scheduler::LinkCosts& link : model_.costs.links) {
        if (ir::index_of(link.from) == k && ir::index_of(link.to) == peer) {
          latency = link.spec.latency;
          takes = link.spec.bandwidth_bytes_per_s.has_value()
                      ? static_cast<Nanos>(static_cast<long double>(bytes) * 1e9L /
                                               *link.spec.bandwidth_bytes_per_s +
                                           0.5L)
                      : 0;
        }
      }
      free = std::max(free, at) + takes;
      arrivals_[{k, peer, pass.forward, pass.micro_batch}] = free + latency;
    }
  }

  const scheduler::StagedModel& model_;
  std::map<std::tuple<std::size_t, std::size_t, bool, std::size_t>, Nanos> arrivals_;
  std::map<std::pair<std::size_t, std::size_t>, Nanos> link_free_;
};

scheduler::StagedModel staged(const ir::Profile& profile,
                              std::uint32_t stages,
                              std::uint32_t micro_batches,
                              const ir::LinkSpec& link) {
  const auto partition = scheduler::balanced_partition(profile, stages);
  REQUIRE(partition.ok());
  auto model = scheduler::stage_costs(profile,
                                      {.layers_per_stage = partition.value(),
                                       .batch_size = kSamples,
                                       .micro_batches = micro_batches},
                                      scheduler::uniform_cluster(stages, link));
  REQUIRE(model.ok());
  return std::move(model).value();
}

bool is_whole_mini_batch(const std::string& policy) {
  return policy == "pipedream" || policy == "spectrain";
}

struct Figures {
  Nanos makespan = 0;
  simulator::SteadyState steady;
};

Figures figures_of(const std::string& policy, const Sizes& sizes, const scheduler::StagedModel& m) {
  const auto run = simulator::replay_long_run(
      {.mini_batches = sizes.mini_batches}, m.costs,
      [&](std::uint32_t n) -> ir::Result<ir::Schedule> {
        return schedule_of(policy, {sizes.stages, sizes.micro_batches, n}, m.graph);
      });
  REQUIRE(run.ok());
  Figures figures;
  figures.makespan = ir::makespan(run.value().base.timeline);
  if (run.value().longer) {
    figures.makespan =
        run.value().extrapolated(figures.makespan, ir::makespan(run.value().longer->timeline));
  }
  figures.steady = run.value().steady;
  return figures;
}

Nanos paper_makespan(const std::string& policy, const Sizes& s, const scheduler::StagedModel& m) {
  std::vector<std::vector<Pass>> orders;
  for (std::size_t k = 0; k < s.stages; ++k) {
    orders.push_back(order_of(policy, s.stages, k, s.micro_batches, s.mini_batches));
  }
  return PaperReplay(m).makespan(orders);
}

TEST_CASE("real profiles: on VGG-16 xpipe's steady time does not depend on T, gpipe's falls") {
  const auto profile = shared_profile("vgg16");
  if (!profile.has_value()) {
    return;
  }
  std::map<std::pair<std::string, std::uint32_t>, Nanos> steady;
  Nanos slowest = 0;
  for (const char* policy : {"xpipe", "gpipe", "pipedream", "spectrain"}) {
    for (const std::uint32_t t : {1U, 2U, 4U}) {
      CAPTURE(policy);
      CAPTURE(t);
      const Sizes sizes{4, is_whole_mini_batch(policy) ? 1 : t, 50};
      const scheduler::StagedModel model = staged(*profile, 4, sizes.micro_batches, {});
      const Figures figures = figures_of(policy, sizes, model);
      CHECK(figures.makespan == paper_makespan(policy, sizes, model));
      REQUIRE(figures.steady.found());
      CHECK(figures.steady.period == 1);
      Sizes one_more = sizes;
      ++one_more.mini_batches;
      CHECK(figures.steady.period_ns == paper_makespan(policy, one_more, model) - figures.makespan);
      steady[{policy, t}] = figures.steady.period_ns;
      if (t == 1) {
        for (const scheduler::StageCosts& stage : model.costs.stages) {
          slowest = std::max(slowest, stage.forward + stage.backward_input + stage.backward_weight);
        }
      }
    }
  }
  // T max(f + b); the micro-batch's f and b are rounded to half a nanosecond each.
  for (const std::uint32_t t : {1U, 2U, 4U}) {
    CHECK(std::abs(steady[{"xpipe", t}] - slowest) <= Nanos{t});
    CHECK(steady[{"pipedream", t}] == slowest);
    CHECK(steady[{"spectrain", t}] == slowest);
  }
  CHECK(steady[{"gpipe", 1}] > steady[{"gpipe", 2}]);
  CHECK(steady[{"gpipe", 2}] > steady[{"gpipe", 4}]);
  CHECK(steady[{"gpipe", 4}] > steady[{"xpipe", 4}]);
}

TEST_CASE("real profiles: with links and branches every makespan equals the papers' replay") {
  for (const char* name : {"vgg16", "resnet101", "inception_v3", "gnmt"}) {
    const auto profile = shared_profile(name);
    if (!profile.has_value()) {
      continue;
    }
    for (const char* policy : {"xpipe", "gpipe", "pipedream"}) {
      for (const std::uint32_t d : {2U, 4U, 8U}) {
        for (const double bandwidth : {1.25e9, 25e9}) {
          CAPTURE(name);
          CAPTURE(policy);
          CAPTURE(d);
          const Sizes sizes{d, is_whole_mini_batch(policy) ? 1U : 2U, 6};
          const scheduler::StagedModel model =
              staged(*profile, d, sizes.micro_batches,
                     {.bandwidth_bytes_per_s = bandwidth, .latency = 20 * kMicro});
          const ir::Schedule schedule = schedule_of(policy, sizes, model.graph);
          const auto timeline = simulator::simulate(schedule, model.costs);
          CHECK(ir::makespan(timeline) == paper_makespan(policy, sizes, model));
          CHECK(timeline == naive_replay(schedule, model.costs));
        }
      }
    }
  }
}

TEST_CASE("real profiles: branches that skip stages send each tensor once to each stage") {
  for (const char* name : {"resnet101", "inception_v3"}) {
    const auto profile = shared_profile(name);
    if (!profile.has_value()) {
      continue;
    }
    for (const std::uint32_t d : {2U, 5U, 16U}) {
      const auto partition = scheduler::balanced_partition(*profile, d).value();
      std::vector<std::uint32_t> stage_of;
      for (std::uint32_t k = 0; k < d; ++k) {
        stage_of.insert(stage_of.end(), partition[k], k);
      }
      ir::Bytes expected = 0;
      for (std::uint32_t layer = 0; layer < profile->layers.size(); ++layer) {
        for (std::uint32_t k = stage_of[layer] + 1; k < d; ++k) {
          const bool used = std::ranges::any_of(profile->edges, [&](const ir::LayerEdge& edge) {
            return edge.from == layer && stage_of[edge.to] == k;
          });
          expected += used ? profile->layers[layer].output_bytes : 0;
        }
      }
      const scheduler::StagedModel model = staged(*profile, d, 1, {});
      ir::Bytes found = 0;
      for (const scheduler::StageLink& link : model.graph.links) {
        found += link.bytes;
      }
      CHECK(found == expected);
      // Sent forward once, and its gradient back: measured on the links of a simulated mini-batch.
      const ir::Schedule schedule = schedule_of("gpipe", {d, 1, 1}, model.graph);
      const auto metrics = simulator::measure(schedule, simulator::simulate(schedule, model.costs));
      CHECK(metrics.bytes == 2 * expected);
      CHECK(metrics.transfers == 2 * model.graph.links.size());
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
