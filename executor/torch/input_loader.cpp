#include "executor/torch/input_loader.h"

#include <exception>
#include <utility>

#include <c10/util/Exception.h>

namespace xpipe::executor::nn {

namespace {

constexpr std::size_t kDepth = 4;  // one is trained, and a slow file costs no more than the others

}  // namespace

InputLoader::InputLoader(const SampleSource& source, std::chrono::milliseconds time_out)
    : source_(source), prefetcher_(kDepth, time_out) {}

void InputLoader::begin(std::uint64_t epoch,
                        std::vector<std::vector<std::uint32_t>> micro_batches,
                        std::vector<std::size_t> order) {
  prefetcher_.stop();
  running_ = false;
  epoch_ = epoch;
  micro_batches_ = std::move(micro_batches);
  order_ = std::move(order);
  loaded_.assign(micro_batches_.size(), {});
}

ir::Result<torch::Tensor> InputLoader::input(std::size_t j) {
  if (source_.is_in_memory()) {
    return source_.input_batch(epoch_, micro_batches_.at(j));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(running_, true)) {
      prefetcher_.begin(micro_batches_.size(), order_, [this](std::size_t piece) -> ir::Status {
        try {
          ir::Result<torch::Tensor> read = source_.input_batch(epoch_, micro_batches_[piece]);
          if (read.ok()) {
            loaded_[piece] = std::move(read.value());
          }
          return read.status();
        } catch (const c10::Error& error) {
          return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "data",
                                error.what_without_backtrace());
        } catch (const std::exception& error) {
          return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "data", error.what());
        }
      });
    }
  }
  if (ir::Status status = prefetcher_.take(j); !status.ok()) {
    return status.error();
  }
  return std::exchange(loaded_[j], {});
}

}  // namespace xpipe::executor::nn
