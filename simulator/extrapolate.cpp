#include "simulator/extrapolate.h"

#include <algorithm>
#include <tuple>

#include "ir/status.h"

namespace xpipe::simulator {

namespace {

template <typename Number>
Number grown(Number of_base, Number of_longer, std::uint64_t repeats) {
  return of_base + static_cast<Number>(repeats) * (of_longer - of_base);
}

}  // namespace

Metrics extrapolated(const Metrics& base, const Metrics& longer, std::uint64_t repeats) {
  XPIPE_CHECK(base.devices.size() == longer.devices.size() &&
              base.links.size() == longer.links.size())
      << "metrics of two different runs";
  Metrics result = base;
  result.makespan = grown(base.makespan, longer.makespan, repeats);
  result.transfers = grown(base.transfers, longer.transfers, repeats);
  result.bytes = grown(base.bytes, longer.bytes, repeats);
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const DeviceUse& a = base.devices[d];
    const DeviceUse& b = longer.devices[d];
    DeviceUse& use = result.devices[d];
    use.busy = grown(a.busy, b.busy, repeats);
    use.first_start = grown(a.first_start, b.first_start, repeats);
    use.last_end = grown(a.last_end, b.last_end, repeats);
    use.exposed_communication = grown(a.exposed_communication, b.exposed_communication, repeats);
  }
  for (std::size_t l = 0; l < result.links.size(); ++l) {
    const LinkUse& a = base.links[l];
    const LinkUse& b = longer.links[l];
    LinkUse& use = result.links[l];
    use.transfers = grown(a.transfers, b.transfers, repeats);
    use.bytes = grown(a.bytes, b.bytes, repeats);
    use.busy = grown(a.busy, b.busy, repeats);
  }
  add_ratios(result);
  return result;
}

std::vector<DeviceMemory> extrapolated(const std::vector<DeviceMemory>& base,
                                       const std::vector<DeviceMemory>& longer,
                                       std::uint64_t repeats) {
  XPIPE_CHECK(base.size() == longer.size()) << "memory of two different runs";
  std::vector<DeviceMemory> result = base;
  for (std::size_t d = 0; d < result.size(); ++d) {
    XPIPE_CHECK(base[d].peak == longer[d].peak)
        << "device " << d << " holds more the longer it runs";
    result[d].curve.clear();
    result[d].peak_time = grown(base[d].peak_time, longer[d].peak_time, repeats);
  }
  return result;
}

bool is_settled(const std::vector<StageStaleness>& base,
                const std::vector<StageStaleness>& longer) {
  const auto facts = [](const StageStaleness& stage) {
    return std::tuple(stage.is_steady, stage.forward_min, stage.forward_max, stage.backward_min,
                      stage.backward_max, stage.predict_forward, stage.predict_backward,
                      stage.peak.versions_held, stage.peak.stash_slots,
                      stage.peak.prediction_slots);
  };
  return std::ranges::equal(base, longer, [&](const StageStaleness& a, const StageStaleness& b) {
    return a.is_steady && facts(a) == facts(b);
  });
}

}  // namespace xpipe::simulator
