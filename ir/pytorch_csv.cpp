#include "ir/pytorch_csv.h"

namespace xpipe::ir {

namespace {

/// "F", "B", "I" or "W" for what PyTorch has an action for.
const char* action_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::Forward:
      return "F";
    case TaskKind::Backward:
      return "B";
    case TaskKind::BackwardInput:
      return "I";
    case TaskKind::BackwardWeight:
      return "W";
    case TaskKind::Recompute:
    case TaskKind::Predict:
    case TaskKind::Step:
    case TaskKind::Stash:
    case TaskKind::Release:
    case TaskKind::Send:
    case TaskKind::Receive:
    case TaskKind::AllReduce:
    case TaskKind::SumTied:
    case TaskKind::ClipNorm:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

std::string schedule_to_pytorch_csv(const Schedule& schedule) {
  std::string text;
  for (const Lane& lane : schedule.lanes) {
    if (lane.kind != LaneKind::Compute) {
      continue;
    }
    bool first = true;
    for (const TaskId id : lane.order) {
      const Task& task = schedule.task(id);
      if (const char* action = action_of(task.kind())) {
        text += first ? "" : ",";
        text += std::to_string(index_of(task.stage)) + action +
                std::to_string(index_of(*micro_batch_of(task)));
        first = false;
      }
    }
    text += '\n';
  }
  return text;
}

bool csv_loses_meaning(const Schedule& schedule) {
  for (const Task& task : schedule.tasks) {
    const WeightRead* read = weights_read(task);
    // A synchronous schedule reads version i in every pass of mini-batch i.
    if (read != nullptr &&
        (read->distance != 0 ||
         read->version != index_of(mini_batch_of(task, schedule.micro_batches)))) {
      return true;
    }
  }
  return false;
}

}  // namespace xpipe::ir
