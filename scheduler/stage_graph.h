// Which stages exchange tensors, and how many bytes: what the communication
// pass needs to know of a model that has been cut into stages.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/ids.h"

namespace xpipe::scheduler {

/// Everything that stage `from` hands to stage `to` (from < to) for one
/// micro-batch; the backward carries as many bytes the other way. A tensor
/// needed on several later stages counts once for each of them (design.md §10,
/// Cuts).
struct StageLink {
  ir::StageId from{};
  ir::StageId to{};
  ir::Bytes bytes = 0;  ///< ir::kUnknownBytes where the model is not known

  bool operator==(const StageLink&) const = default;
};

/// Two stages that share weights, such as the embedding of tokens and the layer that turns numbers
/// into tokens again; each has a copy.
struct StageTie {
  ir::StageId first{};
  ir::StageId second{};  ///< > first
  ir::Bytes bytes = 0;   ///< of the shared parameters

  bool operator==(const StageTie&) const = default;
};

struct StageGraph {
  std::uint32_t stages = 0;
  std::vector<StageLink> links;     ///< sorted by (from, to), no pair twice
  std::vector<StageTie> ties = {};  ///< sorted by (first, second), no pair twice
};

/// Stage k feeds stage k + 1, bytes unknown: the graph when there is no
/// profile.
[[nodiscard]] StageGraph chain_of(std::uint32_t stages);

}  // namespace xpipe::scheduler
