#include "simulator/steady_state.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace xpipe::simulator {

namespace {

using ir::Nanos;

/// The smallest p up to `longest` with window[i] == window[i + p] throughout; 0 when none is.
std::uint32_t period_of(std::span<const Nanos> window, std::uint32_t longest) {
  for (std::uint32_t p = 1; p <= longest; ++p) {
    if (std::equal(window.begin() + p, window.end(), window.begin())) {
      return p;
    }
  }
  return 0;
}

}  // namespace

std::optional<Nanos> SteadyState::ns_per_mini_batch() const {
  if (!found()) {
    return std::nullopt;
  }
  return period_ns / period + (2 * (period_ns % period) >= period ? 1 : 0);
}

std::uint32_t default_longest_period(std::uint32_t stages) {
  constexpr std::uint32_t kAtLeast = 8;
  return std::max(kAtLeast, stages);
}

ir::Result<SteadyState> steady_state(const SteadyStateRequest& request,
                                     const MakespanOf& makespan_of) {
  XPIPE_CHECK(request.mini_batches > 0 && request.longest_period > 0)
      << request.mini_batches << " mini-batches, periods up to " << request.longest_period;
  const std::uint32_t first = std::min(request.mini_batches, kLatestStart);
  const std::size_t length = std::size_t{2} * request.longest_period;

  ir::Result<Nanos> previous = makespan_of(first);
  if (!previous.ok()) {
    return previous.error();
  }
  std::vector<Nanos> differences;
  SteadyState steady;
  for (std::uint32_t window = 1; window <= kWindows; ++window) {
    while (differences.size() < window * length) {
      ir::Result<Nanos> next =
          makespan_of(first + static_cast<std::uint32_t>(differences.size()) + 1);
      if (!next.ok()) {
        return next.error();
      }
      differences.push_back(next.value() - previous.value());
      previous = std::move(next);
    }
    const std::span<const Nanos> latest = std::span(differences).last(length);
    steady.period = period_of(latest, request.longest_period);
    if (steady.found()) {
      steady.from = first + (window - 1) * static_cast<std::uint32_t>(length);
      steady.period_ns = std::accumulate(latest.begin(), latest.begin() + steady.period, Nanos{0});
      if (window > 1) {
        steady.note = "the pipeline settles only after more than " +
                      std::to_string(steady.from - length) +
                      " mini-batches; the steady state is that of longer runs";
      }
      return steady;
    }
  }
  steady.note =
      "no steady state: the time of one more mini-batch does not repeat with a period of "
      "at most " +
      std::to_string(request.longest_period) + " between " + std::to_string(first) + " and " +
      std::to_string(first + differences.size()) + " mini-batches";
  return steady;
}

}  // namespace xpipe::simulator
