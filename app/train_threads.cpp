#include "app/train_threads.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "executor/cpu/processors.h"
#include "executor/torch/intra_op_threads.h"

namespace xpipe::app {

executor::CpuPoolOptions train_pool_options(std::uint32_t devices,
                                            std::uint32_t local,
                                            std::uint32_t intra_op_threads,
                                            bool pin) {
  executor::CpuPoolOptions options{.devices = devices,
                                   .on_thread_start = [intra_op_threads](ir::DeviceId) {
                                     executor::nn::set_intra_op_threads(intra_op_threads);
                                   }};
  // Asked before any thread starts.
  const auto variable = [](const char* name) -> const char* {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
  if (const auto place = executor::local_place(variable); pin && place) {
    options.pin_to = executor::pinned_processors(executor::allowed_processors(),
                                                 {.threads = local,
                                                  .intra_op_threads = intra_op_threads,
                                                  .local_rank = place->rank,
                                                  .local_processes = place->processes});
  }
  return options;
}

std::string describe_pinning(const executor::CpuPoolOptions& options, bool pin) {
  if (!pin) {
    return "stage threads are not pinned (--pin none)";
  }
  if (options.pin_to.empty()) {
    return "stage threads are not pinned: there are too few processors for one of its own each";
  }
  std::vector<std::string> of_threads;
  of_threads.reserve(options.pin_to.size());
  for (const std::vector<std::uint32_t>& processors : options.pin_to) {
    of_threads.push_back(fmt::format("{}", fmt::join(processors, "+")));
  }
  return fmt::format("stage threads pinned to processors {}", fmt::join(of_threads, ", "));
}

}  // namespace xpipe::app
