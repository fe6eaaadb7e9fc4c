// Whether all ranks are about to do the same: each says what it holds, rank 0 compares, and all end
// with the items that differ, their values and their ranks.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/peers.h"
#include "ir/status.h"

namespace xpipe::executor {

/// Name and value of what must be the same everywhere: "--lr", "0.001"; "schedule", a hash.
using Items = std::vector<std::pair<std::string, std::string>>;

/// 16 hexadecimal digits: FNV-1a of `bytes`.
[[nodiscard]] std::string fingerprint(std::string_view bytes);

/// What differs between ranks, by item, as Runtime "ranks-differ": "--lr: 0.001 on ranks 0, 2;
/// 0.01 on rank 1". OK when nothing does. `by_rank` is not empty.
[[nodiscard]] ir::Status compare_items(const std::vector<Items>& by_rank);

/// Returns on all ranks alike. Errors: as compare_items(); failures of peers.
[[nodiscard]] ir::Status agree(Peers& peers, const Items& items);

}  // namespace xpipe::executor
