// The backends that the conformance suite runs over. A new backend adds its line to backends.cpp
// and says which cases it cannot pass, and why.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/cpu/cpu_pool.h"
#include "executor/device.h"
#include "executor/gpu_api.h"
#include "ir/schedule.h"

namespace xpipe::tests {

/// A backend with what it stands on.
struct BackendSetup {
  std::unique_ptr<executor::CpuPool> pool;  ///< cpu and emulated
  std::unique_ptr<executor::GpuApi> gpu;    ///< gpu
  std::unique_ptr<executor::Backend> backend;
};

struct BackendCase {
  std::string name;
  /// A fresh one, for schedules of as many devices and stages as `schedule` has.
  std::function<BackendSetup(const ir::Schedule& schedule)> make;
  /// A second backend on what the first stands on; it must outlive it.
  std::function<std::unique_ptr<executor::Backend>(BackendSetup& setup,
                                                   const ir::Schedule& schedule)>
      make_another;
  std::map<std::string, std::string> unsupported;  ///< case -> reason
};

[[nodiscard]] const std::vector<BackendCase>& backend_cases();

/// Calls `test` for every backend that supports the case; prints who skips it and why.
void for_each_backend(const std::string& conformance_case,
                      const std::function<void(const BackendCase&)>& test);

}  // namespace xpipe::tests
