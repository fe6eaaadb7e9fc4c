// The handlers of what stages and replicas do together before a step.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "executor/torch/training_run.h"
#include "ir/task.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

}  // namespace

ir::Status TrainingRun::all_reduce(const ir::Task& task) {
  std::vector<Stage*> members;
  for (std::size_t r = replicas_->begin(task.stage); r < replicas_->end(task.stage); ++r) {
    members.push_back(&stages_[r]);
  }
  return exchange_.sum(
      {.stage = task.stage, .mini_batch = std::get<ir::AllReduce>(task.payload).mini_batch},
      members);
}

ir::Status TrainingRun::sum_tied(const ir::Task& task) {
  const auto& tied = std::get<ir::SumTied>(task.payload);
  const std::size_t first = std::min(index_of(task.stage), index_of(tied.peer));
  const std::size_t second = std::max(index_of(task.stage), index_of(tied.peer));
  std::vector<std::vector<std::size_t>> parameters(2);
  for (const WeightTie& tie : options_.ties) {
    if (tie.first == first && tie.second == second) {
      parameters[0].push_back(tie.first_parameter);
      parameters[1].push_back(tie.second_parameter);
    }
  }
  if (parameters[0].empty()) {
    return ir::make_error(ErrorKind::Internal, "no-tie", "",
                          "stages " + std::to_string(first) + " and " + std::to_string(second) +
                              " share no weight in this model");
  }
  return exchange_.sum({.kind = ir::TaskKind::SumTied,
                        .stage = ir::StageId{static_cast<std::uint16_t>(first)},
                        .peer = ir::StageId{static_cast<std::uint16_t>(second)},
                        .mini_batch = tied.mini_batch},
                       {&stages_[first_[first]], &stages_[first_[second]]}, parameters);
}

/// As torch.nn.utils.clip_grad_norm_ does it: gradients * min(1, limit / (norm + 1e-6)).
ir::Status TrainingRun::clip_norm(const ir::Task& task) {
  const ir::MiniBatch mini_batch = std::get<ir::ClipNorm>(task.payload).mini_batch;
  if (!options_.clip_norm) {
    return ir::make_error(ErrorKind::Internal, "no-limit", "", "the run has no largest norm");
  }
  const std::vector<Stage*> members = first_replicas();
  std::vector<std::vector<bool>> counted;
  counted.reserve(members.size());
  for (const Stage* stage : members) {
    counted.emplace_back(stage == nullptr ? 0 : stage->weights().size(), true);
  }
  for (const WeightTie& tie : options_.ties) {
    if (members[tie.second] != nullptr) {
      counted[tie.second].at(tie.second_parameter) = false;
    }
  }
  const ir::Result<double> norm =
      exchange_.norm({.kind = ir::TaskKind::ClipNorm, .mini_batch = mini_batch}, members,
                     index_of(task.stage), counted);
  if (!norm.ok()) {
    return norm.status();
  }
  if (options_.stop_on_nan && !std::isfinite(norm.value())) {
    return ir::make_error(ErrorKind::Runtime, "norm-not-finite", "",
                          "the norm of the gradients is " + std::to_string(norm.value()) +
                              "; lower --lr, or go on regardless with --no-stop-on-nan");
  }
  {
    const std::lock_guard lock(record_mutex_);
    records_[index_of(mini_batch)].gradient_norm = norm.value();
  }
  const double factor = *options_.clip_norm / (norm.value() + 1e-6);
  if (!(factor >= 1.0)) {
    stage_of(task).scale_gradients(factor);
  }
  return {};
}

}  // namespace xpipe::executor::nn
