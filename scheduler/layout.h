// Where the stages run: how many replicas each has, and on which device each of them is. Read from
// `--devices`, `--placement` and `--replicas`, whose combinations are checked here.
//
//   --stages 4                               each stage on a device of its own
//   --stages 4 --devices 2                   0,0,1,1: as many stages a device as need be, in order
//   --stages 4 --placement 0,1,1,0           by stage
//   --stages 3 --replicas 2,1,1              stage 0 on devices 0 and 1, stage 1 on 2, stage 2 on 3
//   --stages 2 --replicas 2,2 --placement 0,1,0,1    by stage, then replica
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::scheduler {

struct LayoutRequest {
  std::uint32_t stages = 1;
  std::optional<std::uint32_t> devices;  ///< `--devices`
  std::vector<std::uint32_t> placement;  ///< `--placement`, by stage, then replica; empty: none
  std::vector<std::uint32_t> replicas;   ///< `--replicas`, by stage; empty: one each
};

struct Layout {
  std::uint32_t devices = 0;
  std::vector<std::uint32_t> replicas;  ///< by StageId
  std::vector<ir::DeviceId> placement;  ///< by StageId, then replica, in a row

  /// The devices of each stage, by StageId, then replica.
  [[nodiscard]] std::vector<std::vector<ir::DeviceId>> by_stage() const;

  bool operator==(const Layout&) const = default;
};

/// Every device is used, and no two replicas of a stage share one. Errors: Usage, all that is wrong
/// with the lists, with both numbers where two disagree.
[[nodiscard]] ir::Result<Layout> resolve_layout(const LayoutRequest& request);

}  // namespace xpipe::scheduler
