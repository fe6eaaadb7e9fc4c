#include "scheduler/chain_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "scheduler/imbalance.h"

namespace xpipe::scheduler {

namespace {

using ir::Bytes;
using ir::Nanos;
using std::size_t;

constexpr std::int64_t kUnreachable = std::numeric_limits<std::int64_t>::max();
/// Longest sum of all stages; keeps every sum and the square of every time in range.
constexpr double kLongest = 4e18;

std::int64_t scaled(std::int64_t value, double factor) {
  return factor == 1.0 ? value : std::llround(static_cast<double>(value) * factor);
}

/// Three passes over (stage, cut), each from the last stage to the first: the least excess of
/// memory, with that the least bottleneck, with both the least imbalance.
class ChainSearch {
 public:
  explicit ChainSearch(const ChainProblem& problem)
      : cuts_(problem.cuts), after_(problem.after), stages_(problem.stages) {}

  /// nullopt when no chain of cuts is as long.
  std::optional<ChainPlan> solve() {
    const auto excess = [this](size_t k, size_t i, size_t j) { return excess_of(k, i, j); };
    const auto time = [this](size_t k, size_t i, size_t j) { return time_of(k, i, j); };
    excess_ = least(excess, excess);
    if (excess_ == kUnreachable) {
      return std::nullopt;
    }
    bottleneck_ = least(
        [&](size_t k, size_t i, size_t j) {
          return excess(k, i, j) > excess_ ? kUnreachable
                                           : std::max(time(k, i, j), send_after(k, j));
        },
        time);
    ChainPlan plan = balance();
    plan.bottleneck = bottleneck_;
    plan.shortfall = excess_;
    plan.is_transfer = true;
    size_t begin = 0;
    for (size_t k = 0; k < stages_.size(); ++k) {
      plan.is_transfer = plan.is_transfer && time_of(k, begin, plan.ends[k]) < bottleneck_;
      begin = plan.ends[k];
    }
    return plan;
  }

 private:
  [[nodiscard]] bool is_chain() const { return after_.empty(); }

  [[nodiscard]] Nanos time_of(size_t k, size_t i, size_t j) const {
    return stage_time(stages_[k], cuts_[i], cuts_[j]);
  }

  [[nodiscard]] Nanos send_after(size_t k, size_t j) const {
    return k + 1 < stages_.size() ? transfer_time(stages_[k], cuts_[j]) : 0;
  }

  [[nodiscard]] Bytes excess_of(size_t k, size_t i, size_t j) const {
    const auto& limit = stages_[k].memory_bytes;
    return limit ? std::max<Bytes>(0, held_bytes(stages_[k], cuts_[i], cuts_[j]) - *limit) : 0;
  }

  /// Calls f(j) for each cut behind i that stage k may end at, until it says false.
  template <typename F>
  void for_ends(size_t k, size_t i, const F& f) const {
    const size_t last = cuts_.size() - 1;
    if (k + 1 == stages_.size()) {
      if (i < last) {
        f(last);
      }
    } else if (is_chain()) {
      for (size_t j = i + 1; j < last && f(j); ++j) {
      }
    } else {
      for (const std::uint32_t j : after_[i]) {
        if (j < last && !f(j)) {
          return;
        }
      }
    }
  }

  /// The least over all chains of cuts of the largest cost of a stage. `grows` is a part of the
  /// cost that only grows with the stage: where it passes the best, a chain is searched no further.
  template <typename Cost, typename Grows>
  [[nodiscard]] std::int64_t least(const Cost& cost, const Grows& grows) const {
    std::vector<std::int64_t> behind(cuts_.size(), kUnreachable);
    behind.back() = 0;
    for (size_t k = stages_.size(); k-- > 0;) {
      std::vector<std::int64_t> here(cuts_.size(), kUnreachable);
      for (size_t i = 0; i < cuts_.size(); ++i) {
        for_ends(k, i, [&](size_t j) {
          if (behind[j] < here[i]) {
            here[i] = std::min(here[i], std::max(cost(k, i, j), behind[j]));
          }
          return !is_chain() || grows(k, i, j) <= here[i];
        });
      }
      behind = std::move(here);
    }
    return behind.front();
  }

  ChainPlan balance() const {
    std::vector<std::optional<Imbalance>> behind(cuts_.size());
    behind.back() = Imbalance{};
    std::vector<std::vector<std::uint32_t>> end(stages_.size(),
                                                std::vector<std::uint32_t>(cuts_.size(), 0));
    for (size_t k = stages_.size(); k-- > 0;) {
      std::vector<std::optional<Imbalance>> here(cuts_.size());
      for (size_t i = 0; i < cuts_.size(); ++i) {
        for_ends(k, i, [&](size_t j) {
          const Nanos time = time_of(k, i, j);
          const bool fits = time <= bottleneck_ && send_after(k, j) <= bottleneck_ &&
                            excess_of(k, i, j) <= excess_;
          if (fits && behind[j].has_value()) {
            const auto t = static_cast<Wide>(time);
            const Wide count = cuts_[j].layers - cuts_[i].layers;
            const Imbalance found{behind[j]->times + t * t, behind[j]->counts + count * count};
            if (!here[i].has_value() || found < *here[i] ||
                (found == *here[i] && cuts_[j].layers >= cuts_[end[k][i]].layers)) {
              here[i] = found;
              end[k][i] = static_cast<std::uint32_t>(j);
            }
          }
          return !is_chain() || time <= bottleneck_;
        });
      }
      behind = std::move(here);
    }
    XPIPE_CHECK(behind.front().has_value()) << "no cut keeps the bottleneck that was found";
    ChainPlan plan;
    size_t begin = 0;
    for (size_t k = 0; k < stages_.size(); ++k) {
      begin = end[k][begin];
      plan.ends.push_back(static_cast<std::uint32_t>(begin));
    }
    return plan;
  }

  const std::vector<CutPoint>& cuts_;
  const std::vector<std::vector<std::uint32_t>>& after_;
  const std::vector<StageTerms>& stages_;
  Bytes excess_ = 0;
  Nanos bottleneck_ = 0;
};

/// By cut: the others whose parts contain its own.
std::vector<std::vector<std::uint32_t>> cuts_after(const std::vector<Antichain>& found) {
  std::vector<std::vector<std::uint32_t>> after(found.size() + 1);
  for (std::uint32_t j = 0; j < found.size(); ++j) {
    after[0].push_back(j + 1);
    for (std::uint32_t i = 0; i < j; ++i) {
      if (found[i].part.is_proper_subset_of(found[j].part)) {
        after[i + 1].push_back(j + 1);
      }
    }
  }
  return after;
}

/// Sums of all stages must fit; their squares then fit in 128 bits.
bool is_too_long(const ChainProblem& problem) {
  double total = 0.0;
  const CutPoint& all = problem.cuts.back();
  for (const StageTerms& terms : problem.stages) {
    double sent = 0.0;
    for (const CutPoint& cut : problem.cuts) {
      sent = std::max(sent, static_cast<double>(cut.crossing_bytes) * terms.ns_per_sent_byte);
    }
    total += 2 * static_cast<double>(all.time) * terms.slowness +
             static_cast<double>(terms.overhead) +
             static_cast<double>(all.parameter_bytes) * terms.ns_per_parameter_byte + sent;
    const double held = static_cast<double>(all.saved_bytes) * terms.held_per_saved_byte +
                        static_cast<double>(all.parameter_bytes) * terms.held_per_parameter_byte;
    if (!(held < kLongest)) {
      return true;
    }
  }
  return !(total < kLongest);
}

}  // namespace

std::vector<CutPoint> cuts_of_order(const ir::Profile& profile) {
  const auto count = static_cast<std::uint32_t>(profile.layers.size());
  std::vector<std::uint32_t> last_use(count, 0);
  for (const ir::LayerEdge& edge : profile.edges) {
    last_use[edge.from] = std::max(last_use[edge.from], edge.to);
  }
  std::vector<Bytes> used_up(count + 1, 0);  // by the number of layers before the cut
  std::vector<Bytes> needed(count + 1, 0);   // by the same, of the last layer by the next
  for (const ir::LayerEdge& edge : profile.edges) {
    if (edge.to == edge.from + 1) {
      needed[edge.to] = profile.layers[edge.from].output_bytes;
    }
  }
  std::vector<CutPoint> cuts{{}};
  for (std::uint32_t l = 0; l < count; ++l) {
    const ir::LayerProfile& layer = profile.layers[l];
    CutPoint cut = cuts.back();
    cut.layers = l + 1;
    cut.time += layer.forward + layer.backward_input + layer.backward_weight;
    cut.forward += layer.forward;
    cut.saved_bytes += layer.saved_bytes;
    cut.parameter_bytes += layer.parameter_bytes;
    cut.needed_bytes = needed[l + 1];
    if (last_use[l] > l) {
      cut.crossing_bytes += layer.output_bytes;
      used_up[last_use[l] + 1] += layer.output_bytes;
    }
    cut.crossing_bytes -= used_up[l + 1];
    cuts.push_back(cut);
  }
  return cuts;
}

AntichainCuts cuts_of_antichains(const Cuts& found, const ir::Profile& profile) {
  AntichainCuts result{.cuts = {{}}, .after = cuts_after(found.antichains)};
  std::vector<size_t> node_of(profile.layers.size(), NodeSet::npos);  // by layer
  for (size_t n = 0; n < found.graph.nodes.size(); ++n) {
    for (const std::uint32_t l : found.graph.nodes[n].layers) {
      node_of[l] = n;
    }
  }
  CutPoint inputs;
  for (const std::uint32_t l : found.graph.inputs) {
    ++inputs.layers;
    inputs.saved_bytes += profile.layers[l].saved_bytes;
  }
  for (const Antichain& antichain : found.antichains) {
    CutPoint cut = inputs;
    cut.time = antichain.time;
    cut.forward = antichain.forward;
    cut.saved_bytes += antichain.saved_bytes;
    cut.parameter_bytes = antichain.parameter_bytes;
    cut.crossing_bytes = antichain.crossing_bytes;
    for (auto n = antichain.part.find_first(); n != NodeSet::npos;
         n = antichain.part.find_next(n)) {
      cut.layers += static_cast<std::uint32_t>(found.graph.nodes[n].layers.size());
    }
    for (const std::uint32_t l : found.graph.inputs) {
      const bool crosses = std::ranges::any_of(profile.edges, [&](const ir::LayerEdge& edge) {
        return edge.from == l && !antichain.part.test(node_of[edge.to]);
      });
      cut.crossing_bytes += crosses ? profile.layers[l].output_bytes : 0;
    }
    result.cuts.push_back(cut);
  }
  return result;
}

ir::Result<ChainPlan> plan_chain(const ChainProblem& problem) {
  const size_t layers = problem.cuts.size() - 1;
  const size_t stages = problem.stages.size();
  if (stages == 0 || stages > layers) {
    return ir::make_error(ir::ErrorKind::Usage, "stages", "--stages",
                          std::to_string(layers) + " layers cannot be cut into " +
                              std::to_string(stages) +
                              " stages of at least one layer each; give 1 "
                              "to " +
                              std::to_string(layers) + " stages");
  }
  if (is_too_long(problem)) {
    return ir::make_error(ir::ErrorKind::Usage, "too-long", "profile",
                          "its times or bytes on this cluster pass what 64 bits hold; check units");
  }
  std::optional<ChainPlan> plan = ChainSearch(problem).solve();
  if (!plan) {
    return ir::make_error(ir::ErrorKind::Usage, "stages", "--stages",
                          "the network's antichains cannot be cut into " + std::to_string(stages) +
                              " stages; give fewer, or cut in the order of the file");
  }
  return std::move(*plan);
}

Nanos stage_time(const StageTerms& terms, const CutPoint& begin, const CutPoint& end) {
  const Nanos again = terms.recomputes ? end.forward - begin.forward : 0;
  return scaled(end.time - begin.time + again, terms.slowness) + terms.overhead +
         scaled(end.parameter_bytes - begin.parameter_bytes, terms.ns_per_parameter_byte);
}

Nanos transfer_time(const StageTerms& terms, const CutPoint& boundary) {
  return scaled(boundary.crossing_bytes, terms.ns_per_sent_byte);
}

Bytes held_bytes(const StageTerms& terms, const CutPoint& begin, const CutPoint& end) {
  return scaled(end.saved_bytes - begin.saved_bytes, terms.held_per_saved_byte) +
         scaled(end.parameter_bytes - begin.parameter_bytes, terms.held_per_parameter_byte);
}

}  // namespace xpipe::scheduler
