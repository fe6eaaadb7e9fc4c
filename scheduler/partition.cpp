#include "scheduler/partition.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "scheduler/imbalance.h"
#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

using ir::Nanos;
using std::size_t;

/// prefix[i]: the time of the first i layers. nullopt when it does not fit.
std::optional<std::vector<Nanos>> prefix_times(const ir::Profile& profile) {
  std::vector<Nanos> prefix{0};
  for (const ir::LayerProfile& layer : profile.layers) {
    Nanos sum = prefix.back();
    for (const Nanos part : {layer.forward, layer.backward_input, layer.backward_weight}) {
      if (part > kTooLarge - sum) {
        return std::nullopt;
      }
      sum += part;
    }
    prefix.push_back(sum);
  }
  return prefix;
}

/// Whether `stages` stages of at most `limit` can hold all layers: fill each as far as it goes.
bool fits(const std::vector<Nanos>& prefix, std::uint32_t stages, Nanos limit) {
  std::uint32_t used = 1;
  Nanos begin = 0;
  for (size_t i = 1; i < prefix.size(); ++i) {
    if (prefix[i] - prefix[i - 1] > limit) {
      return false;
    }
    if (prefix[i] - begin > limit) {
      ++used;
      begin = prefix[i - 1];
    }
  }
  return used <= stages;  // fewer are no harm: there are layers enough to cut further
}

/// The smallest time that the slowest of `stages` stages can have, by bisection over whole numbers.
Nanos smallest_bottleneck(const std::vector<Nanos>& prefix, std::uint32_t stages) {
  Nanos low = 0;
  Nanos high = prefix.back();
  while (low < high) {
    const Nanos middle = low + (high - low) / 2;
    if (fits(prefix, stages, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

/// Cuts the layers from the back, one stage more in each round, no stage above `limit`.
///
/// best[i] is the imbalance of layers i.. in the stages of the rounds so far, first_end[round][i]
/// where the first of these ends. Squares of sums satisfy the quadrangle inequality, so the best
/// first end never falls as i grows and each round is solved by halving its range of i.
class BalancedCut {
 public:
  BalancedCut(const std::vector<Nanos>& prefix, Nanos limit)
      : prefix_(prefix), limit_(limit), layers_(prefix.size() - 1) {}

  Partition into(std::uint32_t stages) {
    best_.assign(layers_ + 1, {});
    // The layers that the stages of the rounds so far can hold: begins in [first_, last_].
    size_t first = layers_;
    size_t last = layers_;
    for (std::uint32_t round = 0; round < stages; ++round) {
      previous_ = best_;
      previous_first_ = first;
      previous_last_ = last;
      first_end_.emplace_back(layers_ + 1, 0);
      last = layers_ - round - 1;
      first = earliest_begin(first);
      solve(first, last, previous_first_, previous_last_);
    }
    Partition counts;
    size_t begin = 0;
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      const size_t end = first_end_[stages - stage - 1][begin];
      counts.push_back(static_cast<std::uint32_t>(end - begin));
      begin = end;
    }
    return counts;
  }

 private:
  /// The first layer of a stage that ends where the stages behind it may begin.
  [[nodiscard]] size_t earliest_begin(size_t end) const {
    while (end > 0 && prefix_[previous_first_] - prefix_[end - 1] <= limit_) {
      --end;
    }
    return end;
  }

  /// best_ and first_end_ for begins in [low, high], whose best ends lie in [end_low, end_high].
  void solve(size_t low, size_t high, size_t end_low, size_t end_high) {
    if (low > high) {
      return;
    }
    const size_t begin = low + (high - low) / 2;
    std::optional<Imbalance> best;
    size_t best_end = end_low;
    for (size_t end = std::max(end_low, begin + 1);
         end <= end_high && prefix_[end] - prefix_[begin] <= limit_; ++end) {
      const auto time = static_cast<Wide>(prefix_[end] - prefix_[begin]);
      const auto count = static_cast<Wide>(end - begin);
      const Imbalance candidate{previous_[end].times + time * time,
                                previous_[end].counts + count * count};
      if (!best.has_value() || candidate <= *best) {  // of equals the last: a larger first stage
        best = candidate;
        best_end = end;
      }
    }
    XPIPE_CHECK(best.has_value()) << "no cut for layers " << begin << "..";
    best_[begin] = *best;
    first_end_.back()[begin] = static_cast<std::uint32_t>(best_end);
    if (begin > low) {
      solve(low, begin - 1, end_low, best_end);
    }
    solve(begin + 1, high, best_end, end_high);
  }

  const std::vector<Nanos>& prefix_;
  Nanos limit_;
  size_t layers_;
  std::vector<Imbalance> best_;
  std::vector<Imbalance> previous_;
  size_t previous_first_ = 0;
  size_t previous_last_ = 0;
  std::vector<std::vector<std::uint32_t>> first_end_;  ///< by round, by begin
};

std::string counts_text(const Partition& counts) {
  std::string text;
  for (const std::uint32_t count : counts) {
    text += (text.empty() ? "" : ",") + std::to_string(count);
  }
  return text;
}

}  // namespace

ir::Result<Partition> balanced_partition(const ir::Profile& profile, std::uint32_t stages) {
  const size_t layers = profile.layers.size();
  if (stages == 0 || stages > layers) {
    return ir::make_error(
        ir::ErrorKind::Usage, "stages", "--stages",
        std::to_string(layers) + " layers cannot be cut into " + std::to_string(stages) +
            " stages of at least one layer each; give 1 to " + std::to_string(layers) + " stages");
  }
  const auto prefix = prefix_times(profile);
  if (!prefix.has_value()) {
    return ir::make_error(ir::ErrorKind::Usage, "too-long", "profile",
                          "the layers' times together pass 2^63 ns (292 years); check their unit");
  }
  return BalancedCut(*prefix, smallest_bottleneck(*prefix, stages)).into(stages);
}

ir::Status check_partition(const ir::Profile& profile, const Partition& layers_per_stage) {
  ir::Error error{.kind = ir::ErrorKind::Usage, .diagnostics = {}};
  const auto fault = [&error](std::string message) {
    error.diagnostics.push_back({"partition", "--partition", std::move(message)});
  };
  if (layers_per_stage.empty()) {
    fault("names no stage; give the layers of each stage, as in 4,4,3,2");
  }
  for (size_t k = 0; k < layers_per_stage.size(); ++k) {
    if (layers_per_stage[k] == 0) {
      fault("stage " + std::to_string(k) + " of " + counts_text(layers_per_stage) +
            " has no layer; each stage needs at least 1");
    }
  }
  const std::uint64_t sum =
      std::accumulate(layers_per_stage.begin(), layers_per_stage.end(), std::uint64_t{0});
  const size_t layers = profile.layers.size();
  if (sum < layers && !layers_per_stage.empty()) {
    fault(counts_text(layers_per_stage) + " places " + std::to_string(sum) +
          " layers, the profile has " + std::to_string(layers) + "; layer " + std::to_string(sum) +
          " (" + profile.layers[sum].name + ") and what follows it is missing");
  } else if (sum > layers) {
    fault(counts_text(layers_per_stage) + " places " + std::to_string(sum) +
          " layers, the profile has " + std::to_string(layers) + "; there is no layer " +
          std::to_string(layers));
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return {};
}

Nanos bottleneck(const ir::Profile& profile, const Partition& layers_per_stage) {
  Nanos slowest = 0;
  size_t layer = 0;
  for (const std::uint32_t count : layers_per_stage) {
    Nanos time = 0;
    for (const size_t end = layer + count; layer < end; ++layer) {
      const ir::LayerProfile& l = profile.layers[layer];
      time += l.forward + l.backward_input + l.backward_weight;
    }
    slowest = std::max(slowest, time);
  }
  return slowest;
}

}  // namespace xpipe::scheduler
