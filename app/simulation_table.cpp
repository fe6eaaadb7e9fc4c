#include <algorithm>
#include <utility>

#include "app/simulation.h"
#include "app/table.h"
#include <fmt/format.h>

namespace xpipe::app {

namespace {

/// "3,2,1,0", shortened in the middle where there are many stages.
template <typename Of>
std::string by_stage(std::size_t stages, Of&& of) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t k = 0; k < stages; ++k) {
    if (stages > kShown && k == kShown / 2) {
      text += ",..";
      k = stages - kShown / 2;
    }
    text += (text.empty() ? "" : ",") + of(k);
  }
  return text;
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
}

ir::Bytes peak_memory(const Simulation& run) {
  ir::Bytes peak = 0;
  for (const simulator::DeviceMemory& device : run.memory) {
    peak = std::max(peak, device.peak);
  }
  return peak;
}

std::string bytes_text(ir::Bytes bytes) {
  if (bytes < 10'000'000) {
    return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  }
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

/// A rate with four significant digits and no exponent.
std::string rate_text(const std::optional<double>& rate) {
  if (!rate) {
    return "-";
  }
  return *rate >= 1000 ? fmt::format("{:.0f}", *rate) : fmt::format("{:.4g}", *rate);
}

}  // namespace

std::string to_table(const Workload& workload, const std::vector<Simulation>& runs) {
  std::string text =
      fmt::format("{} ({})\n{} stages, layers per stage {}\n\n", workload.profile.name,
                  workload.profile.provenance, workload.stages, fmt::join(workload.partition, ","));
  Table table({"<policy", "T", "ms/mini-batch", "samples/s", "bubble", "busy", "peak memory",
               "<staleness F", "<staleness B", "<predict F", "<predict B", "<weights held"});
  for (const Simulation& run : runs) {
    const auto steady = run.steady.ns_per_mini_batch();
    double busiest = 0.0;
    for (const simulator::DeviceUse& device : run.metrics.devices) {
      busiest = std::max(busiest, device.utilization);
    }
    const auto& stages = run.staleness;
    const auto column = [&stages](auto&& of) {
      return by_stage(stages.size(), [&](std::size_t k) { return of(stages[k]); });
    };
    using Stage = simulator::StageStaleness;
    table.add_row(
        {run.schedule.policy, std::to_string(run.schedule.micro_batches),
         steady ? fmt::format("{:.3f}", static_cast<double>(*steady) / 1e6) : "-",
         rate_text(run.samples_per_s), fmt::format("{:.1f} %", 100 * run.metrics.bubble_of_total),
         fmt::format("{:.1f} %", 100 * busiest), bytes_text(peak_memory(run)),
         column([](const Stage& s) { return range_text(s.forward_min, s.forward_max); }),
         column([](const Stage& s) { return range_text(s.backward_min, s.backward_max); }),
         column([](const Stage& s) { return std::to_string(s.predict_forward); }),
         column([](const Stage& s) { return std::to_string(s.predict_backward); }),
         column([](const Stage& s) { return std::to_string(s.peak.versions_held); })});
  }
  text += table.to_string();
  text +=
      "\nms/mini-batch and samples/s: steady state. bubble, busy (of the busiest device), peak "
      "memory\n(of the fullest device): the whole run. The last five: by stage.\n";
  std::vector<std::string> said;
  for (const Simulation& run : runs) {
    for (const std::string& note : run.notes) {
      if (std::find(said.begin(), said.end(), note) == said.end()) {
        said.push_back(note);
        text += "note: " + note + "\n";
      }
    }
  }
  return text;
}

}  // namespace xpipe::app
