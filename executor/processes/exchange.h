// What all ranks do together at a drained border, made of plain messages. Every rank calls the same
// functions in the same order. Errors are those of Peers::receive().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/peers.h"
#include "ir/status.h"

namespace xpipe::executor {

/// On rank 0: everybody's bytes, by rank; elsewhere nothing.
[[nodiscard]] ir::Result<std::vector<std::string>> gather_at_zero(Peers& peers, std::string bytes);

/// On every rank: what `root` gave.
[[nodiscard]] ir::Result<std::string> broadcast_from(Peers& peers,
                                                     std::uint32_t root,
                                                     std::string bytes);

}  // namespace xpipe::executor
