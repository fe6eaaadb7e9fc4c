// The handlers of what stages and replicas do together before a step.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "executor/torch/training_run.h"
#include "ir/task.h"
#include "scheduler/exchange_pass.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

/// Of a part of an exchange: the same for all parts.
ExchangeKey key_of(const ir::Task& task) {
  if (const auto* reduce = std::get_if<ir::AllReduce>(&task.payload)) {
    return {.stage = task.stage, .mini_batch = reduce->mini_batch};
  }
  if (const auto* tied = std::get_if<ir::SumTied>(&task.payload)) {
    return {.kind = ir::TaskKind::SumTied,
            .stage = std::min(task.stage, tied->peer),
            .peer = std::max(task.stage, tied->peer),
            .mini_batch = tied->mini_batch};
  }
  return {.kind = ir::TaskKind::ClipNorm,
          .mini_batch = std::get<ir::ClipNorm>(task.payload).mini_batch};
}

}  // namespace

/// The replicas that take part, in the order of the group.
std::vector<std::size_t> TrainingRun::replicas_in(const ExchangeKey& key) const {
  if (key.kind == ir::TaskKind::ClipNorm) {
    return first_;
  }
  if (key.kind == ir::TaskKind::SumTied) {
    return {first_[index_of(key.stage)], first_[index_of(key.peer)]};
  }
  std::vector<std::size_t> replicas;
  for (std::size_t r = replicas_->begin(key.stage); r < replicas_->end(key.stage); ++r) {
    replicas.push_back(r);
  }
  return replicas;
}

/// Null for those that other processes hold.
std::vector<Stage*> TrainingRun::members_of(const ExchangeKey& key) {
  std::vector<Stage*> members;
  for (const std::size_t r : replicas_in(key)) {
    members.push_back(is_here(r) ? &stages_[r] : nullptr);
  }
  return members;
}

/// Of the two stages of a tie, which weights.
std::vector<std::vector<std::size_t>> TrainingRun::tied_parameters(const ExchangeKey& key) const {
  std::vector<std::vector<std::size_t>> parameters(2);
  for (const WeightTie& tie : options_.ties) {
    if (tie.first == index_of(key.stage) && tie.second == index_of(key.peer)) {
      parameters[0].push_back(tie.first_parameter);
      parameters[1].push_back(tie.second_parameter);
    }
  }
  return parameters;
}

/// Which parameters of a stage that is here the norm counts: of a tie, the earlier stage's.
std::vector<bool> TrainingRun::counted_parameters(std::size_t stage) const {
  std::vector<bool> counted(stages_[first_[stage]].weights().size(), true);
  for (const WeightTie& tie : options_.ties) {
    if (tie.second == stage) {
      counted.at(tie.second_parameter) = false;
    }
  }
  return counted;
}

Tensors TrainingRun::brought_by(const ExchangeMember& member) {
  const Stage& stage = stages_[replicas_in(member.key)[member.rank]];
  switch (member.key.kind) {
    case ir::TaskKind::ClipNorm:
      return exchange_.squares(member.key, first_.size(), member.rank, stage,
                               counted_parameters(member.rank));
    case ir::TaskKind::SumTied: {
      const std::vector<std::vector<std::size_t>> parameters = tied_parameters(member.key);
      const Tensors all = stage.gradients();
      Tensors tied;
      for (const std::size_t parameter : parameters[member.rank]) {
        tied.push_back(all.at(parameter));
      }
      return tied;
    }
    default:
      return stage.gradients();
  }
}

void TrainingRun::begin_rank_exchanges() {
  std::map<ir::TaskId, std::vector<ExchangeMember>> brought;
  for (const std::vector<scheduler::ExchangePart>& parts : scheduler::exchange_parts(*schedule_)) {
    const ExchangeKey key = key_of(schedule_->task(parts.front().task));
    const std::vector<std::size_t> replicas = replicas_in(key);
    for (const scheduler::ExchangePart& part : parts) {
      const auto member = std::ranges::find(replicas, replicas_->of(schedule_->task(part.task)));
      if (part.behind && member != replicas.end()) {
        brought[*part.behind].push_back(
            {.key = key, .rank = static_cast<std::size_t>(member - replicas.begin())});
      }
    }
  }
  rank_exchange_.begin_segment(std::move(brought),
                               [this](const ExchangeMember& member) { return brought_by(member); });
}

ir::Status TrainingRun::all_reduce(const ir::Task& task) {
  const ExchangeKey key = key_of(task);
  return exchange_.sum(key, members_of(key));
}

ir::Status TrainingRun::sum_tied(const ir::Task& task) {
  const ExchangeKey key = key_of(task);
  const std::vector<std::vector<std::size_t>> parameters = tied_parameters(key);
  if (parameters[0].empty()) {
    return ir::make_error(ErrorKind::Internal, "no-tie", "",
                          "stages " + std::to_string(index_of(key.stage)) + " and " +
                              std::to_string(index_of(key.peer)) +
                              " share no weight in this model");
  }
  return exchange_.sum(key, members_of(key), parameters);
}

/// As torch.nn.utils.clip_grad_norm_ does it: gradients * min(1, limit / (norm + 1e-6)).
ir::Status TrainingRun::clip_norm(const ir::Task& task) {
  const ir::MiniBatch mini_batch = std::get<ir::ClipNorm>(task.payload).mini_batch;
  if (!options_.clip_norm) {
    return ir::make_error(ErrorKind::Internal, "no-limit", "", "the run has no largest norm");
  }
  const ExchangeKey key = key_of(task);
  const std::vector<Stage*> members = members_of(key);
  std::vector<std::vector<bool>> counted(members.size());
  for (std::size_t k = 0; k < members.size(); ++k) {
    if (members[k] != nullptr) {
      counted[k] = counted_parameters(k);
    }
  }
  const ir::Result<double> norm = exchange_.norm(key, members, index_of(task.stage), counted);
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
