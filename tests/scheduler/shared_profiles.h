// Published profiles (PipeDream's graph.txt) from $XPIPE_SHARED/real, default ../shared/real.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/profile.h"

namespace xpipe::tests {

/// The mini-batch that every profile is read with; the files do not say theirs.
inline constexpr std::uint32_t kSharedSamples = 64;

/// "vgg16", ...; nullopt, said loudly, where the file is not there.
[[nodiscard]] std::optional<ir::Profile> shared_profile(const std::string& name);

}  // namespace xpipe::tests
