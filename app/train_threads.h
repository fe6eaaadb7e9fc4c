// The threads of `xpipe train --device cpu`: their intra-op threads, and where they are pinned.
#pragma once

#include <cstdint>
#include <string>

#include "executor/cpu/cpu_pool.h"

namespace xpipe::app {

/// For a pool of `devices`, of which `local` are run by this process (all, with one process).
[[nodiscard]] executor::CpuPoolOptions train_pool_options(std::uint32_t devices,
                                                          std::uint32_t local,
                                                          std::uint32_t intra_op_threads,
                                                          bool pin);

/// "stage threads pinned to processors 0 and 1", or why they are not; one line without its end.
[[nodiscard]] std::string describe_pinning(const executor::CpuPoolOptions& options, bool pin);

}  // namespace xpipe::app
