#include "scheduler/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace xpipe::scheduler {

namespace {

using ir::DeviceId;

constexpr std::uint64_t kMostDevices = std::numeric_limits<std::uint16_t>::max();

std::string count_of(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

class Resolver {
 public:
  explicit Resolver(const LayoutRequest& request) : request_(request) {}

  ir::Result<Layout> resolve() {
    if (request_.stages == 0 || request_.stages > kMostDevices) {
      return ir::make_error(ir::ErrorKind::Usage, "size", "--stages",
                            "found " + std::to_string(request_.stages) +
                                ", expected a whole number from 1 to " +
                                std::to_string(kMostDevices));
    }
    take_replicas();
    if (error_.diagnostics.empty()) {
      request_.placement.empty() ? spread() : take_placement();
    }
    if (error_.diagnostics.empty() && !request_.placement.empty()) {
      check_placement();
    }
    if (!error_.diagnostics.empty()) {
      return error_;
    }
    return std::move(layout_);
  }

 private:
  void fault(const char* option, std::string message) {
    error_.diagnostics.push_back({"layout", option, std::move(message)});
  }

  void take_replicas() {
    layout_.replicas = request_.replicas;
    if (layout_.replicas.empty()) {
      layout_.replicas.assign(request_.stages, 1);
    }
    if (layout_.replicas.size() != request_.stages) {
      fault("--replicas", "found " + count_of(layout_.replicas.size(), "number") + " for " +
                              count_of(request_.stages, "stage") +
                              ": expected one a stage, such as 2,1,1");
      return;
    }
    for (std::size_t k = 0; k < layout_.replicas.size(); ++k) {
      const std::uint32_t count = layout_.replicas[k];
      if (count < 1 || count > kMostDevices) {
        fault("--replicas", "found " + std::to_string(count) + " for stage " + std::to_string(k) +
                                ": expected from 1 to " + std::to_string(kMostDevices));
      }
      ranks_ += count;
    }
    if (error_.diagnostics.empty() && ranks_ > kMostDevices) {
      fault("--replicas", "found " + std::to_string(ranks_) + " in all: expected at most " +
                              std::to_string(kMostDevices));
    }
  }

  /// Without `--placement`: one device each, or stages side by side on fewer devices.
  void spread() {
    const std::uint64_t devices = request_.devices.value_or(ranks_);
    const bool replicated = ranks_ != request_.stages;
    if (replicated && devices != ranks_) {
      fault("--devices", "found " + std::to_string(devices) + " for " +
                             count_of(ranks_, "replica") + " of all stages: expected " +
                             std::to_string(ranks_) +
                             ", or a --placement that says where each of them is");
      return;
    }
    if (devices < 1 || devices > ranks_) {
      fault("--devices", "found " + count_of(devices, "device") + " for " +
                             count_of(request_.stages, "stage") + ": expected from 1 to " +
                             std::to_string(request_.stages) +
                             ", or --replicas that puts stages on several devices");
      return;
    }
    layout_.devices = static_cast<std::uint32_t>(devices);
    for (std::uint64_t rank = 0; rank < ranks_; ++rank) {
      layout_.placement.push_back(DeviceId(static_cast<std::uint16_t>(rank * devices / ranks_)));
    }
  }

  void take_placement() {
    const std::vector<std::uint32_t>& placement = request_.placement;
    if (placement.size() != ranks_) {
      fault("--placement",
            "found " + count_of(placement.size(), "device") + " for " +
                (ranks_ == request_.stages
                     ? count_of(request_.stages, "stage") + ": expected one a stage"
                     : count_of(ranks_, "replica") +
                           " of all stages: expected one each, those of stage 0 first"));
      return;
    }
    const std::uint32_t last = *std::max_element(placement.begin(), placement.end());
    const std::uint64_t devices = request_.devices.value_or(std::uint64_t{last} + 1);
    if (devices < 1 || devices > kMostDevices) {
      fault("--placement", "found device " + std::to_string(last) + ": expected from 0 to " +
                               std::to_string(kMostDevices - 1));
      return;
    }
    layout_.devices = static_cast<std::uint32_t>(devices);
    for (const std::uint32_t device : placement) {
      if (device >= devices) {
        fault("--placement", "found device " + std::to_string(device) + " of " +
                                 count_of(devices, "device") + ": expected from 0 to " +
                                 std::to_string(devices - 1));
      }
      layout_.placement.push_back(DeviceId(static_cast<std::uint16_t>(device)));
    }
  }

  /// No idle device, no stage twice on one.
  void check_placement() {
    std::vector<bool> used(layout_.devices, false);
    std::size_t next = 0;
    for (std::size_t k = 0; k < layout_.replicas.size(); ++k) {
      const std::size_t begin = next;
      for (; next < begin + layout_.replicas[k]; ++next) {
        const DeviceId device = layout_.placement[next];
        used[ir::index_of(device)] = true;
        if (std::find(layout_.placement.begin() + static_cast<std::ptrdiff_t>(begin),
                      layout_.placement.begin() + static_cast<std::ptrdiff_t>(next),
                      device) != layout_.placement.begin() + static_cast<std::ptrdiff_t>(next)) {
          fault("--placement", "puts two replicas of stage " + std::to_string(k) + " on device " +
                                   std::to_string(ir::index_of(device)) +
                                   ": expected different devices");
        }
      }
    }
    for (std::size_t d = 0; d < used.size(); ++d) {
      if (!used[d]) {
        fault("--placement", "leaves device " + std::to_string(d) + " of " +
                                 count_of(used.size(), "device") +
                                 " without a stage: expected each to be used");
      }
    }
  }

  const LayoutRequest& request_;
  ir::Error error_{ir::ErrorKind::Usage, {}};
  Layout layout_;
  std::uint64_t ranks_ = 0;  ///< replicas of all stages
};

}  // namespace

std::vector<std::vector<DeviceId>> Layout::by_stage() const {
  std::vector<std::vector<DeviceId>> stages;
  auto next = placement.begin();
  for (const std::uint32_t count : replicas) {
    stages.emplace_back(next, next + count);
    next += count;
  }
  return stages;
}

ir::Result<Layout> resolve_layout(const LayoutRequest& request) {
  return Resolver(request).resolve();
}

}  // namespace xpipe::scheduler
