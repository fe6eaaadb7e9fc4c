// Puts the layers of a profile into the order that ir/profile.h states: the file's where it is
// topological, else always the ready layer that stands first in the file. For readers of profiles.
#pragma once

#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::ir {

/// Takes layers in the order of the file and edges between them in any direction; leaves both as
/// ir/profile.h wants them. Requires: edge ends in range. Errors: BadInput, code "profile-cycle",
/// with the ring of layers; the profile is then as it was.
Status arrange_layers(Profile& profile);

/// Layer 0 feeds 1 feeds 2 ...
[[nodiscard]] std::vector<LayerEdge> chain_edges(std::size_t layers);

/// Says so when the times or bytes of all layers together do not fit in 64 bits. Errors: BadInput.
Status check_totals(const Profile& profile);

}  // namespace xpipe::ir
