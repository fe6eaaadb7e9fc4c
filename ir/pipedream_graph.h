// Reads PipeDream's profiles, graph.txt (msr-fiddle/pipedream, profiler/*/profiles): nodes with
// times in milliseconds and sizes in bytes, then edges.
//
//   node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=7.072,
//     backward_compute_time=4.442, activation_size=822083584.000, parameter_size=7168.000
//   <TAB>node1 -- node2                                   (each node and each edge on one line)
//
// How it becomes a Profile:
//   layers        "node2 Conv2d(3, 64, ...)", in the topological order of ir/profile.h; nodes that
//                 cost nothing stay
//   Input nodes   their time is data loading: reported apart, zero as compute
//   backward      whole, so halved into input and weight part
//   activations   a list is summed; saved_bytes is the node's own output, an upper bound of what
//                 training keeps, as in-place operations are counted too
//   __getitem__   nodes of that name that nothing uses are dropped, as PipeDream's optimizer does
//   samples       not in the file: the caller's word
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::ir {

struct PipedreamGraph {
  Profile profile;
  std::vector<std::string> notes;  ///< what was assumed or left out, to be printed
};

/// Requires: samples > 0. CR LF and a final newline are accepted. Errors: BadInput, every fault
/// with its line.
[[nodiscard]] Result<PipedreamGraph> pipedream_graph_from_text(std::string_view text,
                                                               std::string_view file,
                                                               std::uint32_t samples);

}  // namespace xpipe::ir
