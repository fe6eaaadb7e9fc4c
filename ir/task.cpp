#include "ir/task.h"

#include <type_traits>

namespace xpipe::ir {

namespace {

template <typename T>
concept ReadsWeights = requires(const T& t) { t.weights; };
template <typename T>
concept OfMicroBatch = requires(const T& t) { t.micro_batch; };

}  // namespace

std::string_view kind_name(TaskKind kind) {
  switch (kind) {
    case TaskKind::Forward:
      return "forward";
    case TaskKind::Backward:
      return "backward";
    case TaskKind::BackwardInput:
      return "backward-input";
    case TaskKind::BackwardWeight:
      return "backward-weight";
    case TaskKind::Recompute:
      return "recompute";
    case TaskKind::Predict:
      return "predict";
    case TaskKind::Step:
      return "step";
    case TaskKind::Stash:
      return "stash";
    case TaskKind::Release:
      return "release";
    case TaskKind::Send:
      return "send";
    case TaskKind::Receive:
      return "receive";
    case TaskKind::AllReduce:
      return "all-reduce";
    case TaskKind::SumTied:
      return "sum-tied";
    case TaskKind::ClipNorm:
      return "clip-norm";
  }
  return "unknown";
}

const WeightRead* weights_read(const Task& task) {
  return std::visit(
      []<typename T>(const T& payload) -> const WeightRead* {
        if constexpr (ReadsWeights<T>) {
          return &payload.weights;
        } else {
          return nullptr;
        }
      },
      task.payload);
}

const MicroBatch* micro_batch_of(const Task& task) {
  return std::visit(
      []<typename T>(const T& payload) -> const MicroBatch* {
        if constexpr (OfMicroBatch<T>) {
          return &payload.micro_batch;
        } else {
          return nullptr;
        }
      },
      task.payload);
}

MiniBatch mini_batch_of(const Task& task, std::uint32_t micro_batches) {
  return std::visit(
      [micro_batches]<typename T>(const T& payload) -> MiniBatch {
        if constexpr (OfMicroBatch<T>) {
          return MiniBatch{index_of(payload.micro_batch) / micro_batches};
        } else {
          return payload.mini_batch;
        }
      },
      task.payload);
}

}  // namespace xpipe::ir
