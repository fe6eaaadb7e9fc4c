// What the readers of data say of a file that is not as it should be. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ir/status.h"

namespace xpipe::executor::nn {

/// Of samples from one file, unpacked.
inline constexpr std::uint64_t kMostDataBytes = std::uint64_t{1} << 31U;

/// BadInput at `file`.
[[nodiscard]] ir::Error broken(const std::filesystem::path& file,
                               std::string code,
                               std::string what);

}  // namespace xpipe::executor::nn
