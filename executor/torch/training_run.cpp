#include "executor/torch/training_run.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include <c10/util/Exception.h>

#include "ir/task.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;
using ir::Pass;

ir::Error torch_failed(std::string what) {
  return ir::make_error(ErrorKind::Runtime, "torch-failed", "", std::move(what));
}

ir::Error no_tensor(const char* place) {
  return ir::make_error(ErrorKind::Internal, "no-tensor", "",
                        std::string("its ") + place + " has not arrived");
}

}  // namespace

bool predicts(const ir::Schedule& schedule) {
  return std::ranges::any_of(
      schedule.tasks, [](const ir::Task& task) { return task.kind() == ir::TaskKind::Predict; });
}

TrainingRun::TrainingRun(std::vector<std::vector<Layer>> parts,
                         const Samples& samples,
                         RunOptions options)
    : samples_(samples), options_(std::move(options)), probes_(parts.size()) {
  for (std::vector<Layer>& part : parts) {
    stages_.emplace_back(std::move(part), !stages_.empty(),
                         StageOptions{.optimizer = options_.optimizer,
                                      .prediction = options_.prediction,
                                      .predicts = options_.predicts,
                                      .seed = options_.seed});
  }
}

void TrainingRun::begin_segment(const ir::Schedule& schedule, Segment segment) {
  schedule_ = &schedule;
  segment_ = std::move(segment);
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    stages_[k].begin_segment(schedule.stages[k].slots, {.mini_batch = segment_.first_of_run,
                                                        .micro_batches = schedule.micro_batches});
  }
  const std::size_t total = std::size_t{schedule.micro_batches} * schedule.mini_batches;
  const Boundary empty{std::vector<torch::Tensor>(total), std::vector<torch::Tensor>(total),
                       std::vector<torch::Tensor>(total)};
  for (std::vector<Boundary>& boundaries : boundaries_) {
    boundaries.assign(stages_.size() - 1, empty);
  }
  records_.assign(schedule.mini_batches, MiniBatchRecord{});
  for (std::uint32_t i = 0; i < schedule.mini_batches; ++i) {
    records_[i].epoch = segment_.epoch;
    records_[i].mini_batch = segment_.first + i;
  }
}

Handler TrainingRun::handler(TaskWork work) {
  return [this, work](const ir::Schedule& schedule, ir::TaskId id) -> ir::Status {
    if (options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed)) {
      return ir::make_error(ErrorKind::Interrupted, "interrupted", "", "stopped by a signal");
    }
    try {
      return (this->*work)(schedule.task(id));
    } catch (const c10::Error& error) {
      return torch_failed(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return torch_failed(error.what());
    }
  };
}

HandlerTable TrainingRun::handlers() {
  HandlerTable table;
  const auto set = [&](ir::TaskKind kind, TaskWork work) {
    table[static_cast<std::size_t>(kind)] = handler(work);
  };
  set(ir::TaskKind::Forward, &TrainingRun::forward);
  set(ir::TaskKind::Backward, &TrainingRun::backward);
  set(ir::TaskKind::Predict, &TrainingRun::predict);
  set(ir::TaskKind::Step, &TrainingRun::step);
  set(ir::TaskKind::Stash, &TrainingRun::stash);
  set(ir::TaskKind::Release, &TrainingRun::release);
  set(ir::TaskKind::Send, &TrainingRun::send);
  set(ir::TaskKind::Receive, &TrainingRun::receive);
  return table;
}

TrainingRun::Boundary& TrainingRun::boundary(Pass pass, std::size_t between) {
  return boundaries_[static_cast<std::size_t>(pass)].at(between);
}

bool TrainingRun::same_device(std::size_t a, std::size_t b) const {
  return schedule_->stages[a].device() == schedule_->stages[b].device();
}

void TrainingRun::post(
    Pass pass, std::size_t from, std::size_t to, std::uint32_t j, torch::Tensor tensor) {
  Boundary& places = boundary(pass, std::min(from, to));
  (same_device(from, to) ? places.inbox : places.outbox)[j] = std::move(tensor);
}

SampleRange TrainingRun::samples_of(std::uint32_t micro_batch) const {
  return micro_batch_range(segment_.mini_batches[micro_batch / schedule_->micro_batches],
                           schedule_->micro_batches, micro_batch % schedule_->micro_batches);
}

ir::Status TrainingRun::forward(const ir::Task& task) {
  const auto& pass = std::get<ir::Forward>(task.payload);
  const std::size_t k = index_of(task.stage);
  const std::uint32_t j = index_of(pass.micro_batch);
  const std::uint32_t i = j / schedule_->micro_batches;
  const SampleRange range = samples_of(j);
  const torch::Tensor input = k == 0 ? gather(samples_.inputs, segment_.order, range)
                                     : std::move(boundary(Pass::Forward, k - 1).inbox[j]);
  if (!input.defined()) {
    return no_tensor("input");
  }
  if (k + 1 < stages_.size()) {
    ir::Result<torch::Tensor> output = stages_[k].forward(pass.micro_batch, input, pass.weights);
    if (output.ok()) {
      post(Pass::Forward, k, k + 1, j, std::move(output.value()));
    }
    return output.status();
  }
  const double share = static_cast<double>(range.count) / segment_.mini_batches[i].count;
  const ir::Result<MicroBatchLoss> loss = stages_[k].forward_loss(
      pass.micro_batch, input, gather(samples_.labels, segment_.order, range), share, pass.weights);
  return loss.ok() ? record_loss(i, j, loss.value()) : loss.status();
}

ir::Status TrainingRun::record_loss(std::uint32_t mini_batch,
                                    std::uint32_t micro_batch,
                                    const MicroBatchLoss& loss) {
  if (options_.stop_on_nan && !std::isfinite(loss.mean)) {
    return ir::make_error(ErrorKind::Runtime, "loss-not-finite", "",
                          "the loss is " + std::to_string(loss.mean) + " in mini-batch " +
                              std::to_string(segment_.first + mini_batch) + " of epoch " +
                              std::to_string(segment_.epoch) + " (micro-batch " +
                              std::to_string(micro_batch) +
                              "); lower --lr, or go on regardless with --no-stop-on-nan");
  }
  MiniBatchRecord& record = records_[mini_batch];
  record.loss += loss.mean * loss.samples;  // sums until the mini-batch is complete
  record.accuracy += loss.correct;
  record.samples += loss.samples;
  if (record.samples == segment_.mini_batches[mini_batch].count) {
    record.loss /= record.samples;
    record.accuracy /= record.samples;
    if (options_.on_mini_batch) {
      options_.on_mini_batch(record);
    }
  }
  return {};
}

ir::Status TrainingRun::backward(const ir::Task& task) {
  const auto& pass = std::get<ir::Backward>(task.payload);
  const std::size_t k = index_of(task.stage);
  const std::uint32_t j = index_of(pass.micro_batch);
  torch::Tensor gradient;
  if (k + 1 < stages_.size()) {
    gradient = std::move(boundary(Pass::Backward, k).inbox[j]);
    if (!gradient.defined()) {
      return no_tensor("gradient");
    }
  }
  ir::Result<torch::Tensor> down = stages_[k].backward(pass.micro_batch, gradient, pass.weights);
  if (down.ok() && k > 0) {
    post(Pass::Backward, k, k - 1, j, std::move(down.value()));
  }
  return down.status();
}

ir::Status TrainingRun::predict(const ir::Task& task) {
  const auto& prediction = std::get<ir::Predict>(task.payload);
  Stage& stage = stages_[index_of(task.stage)];
  if (ir::Status status = stage.predict(prediction); !status.ok()) {
    return status;
  }
  const std::uint32_t every = options_.prediction_error_every;
  if (every > 0 && prediction.pass == Pass::Forward &&
      (segment_.first + index_of(prediction.mini_batch)) % every == 0) {
    probes_[index_of(task.stage)].keep(prediction.mini_batch,
                                       prediction.version + prediction.distance,
                                       stage.weights(prediction.into), stage.weights());
  }
  return {};
}

ir::Status TrainingRun::step(const ir::Task& task) {
  Stage& stage = stages_[index_of(task.stage)];
  if (ir::Status status = stage.step(std::get<ir::Step>(task.payload)); !status.ok()) {
    return status;
  }
  if (options_.prediction_error_every > 0) {
    probes_[index_of(task.stage)].stepped(stage.version(), stage.weights());
  }
  return {};
}

ir::Status TrainingRun::stash(const ir::Task& task) {
  return stages_[index_of(task.stage)].stash(std::get<ir::Stash>(task.payload));
}

ir::Status TrainingRun::release(const ir::Task& task) {
  return stages_[index_of(task.stage)].release(std::get<ir::Release>(task.payload));
}

ir::Status TrainingRun::send(const ir::Task& task) {
  const auto& message = std::get<ir::Send>(task.payload);
  const std::uint32_t j = index_of(message.micro_batch);
  Boundary& places = boundary(message.pass, std::min(index_of(task.stage), index_of(message.peer)));
  if (!places.outbox[j].defined()) {
    return no_tensor("tensor to send");
  }
  places.wire[j] = std::move(places.outbox[j]);
  return {};
}

ir::Status TrainingRun::receive(const ir::Task& task) {
  const auto& message = std::get<ir::Receive>(task.payload);
  const std::uint32_t j = index_of(message.micro_batch);
  Boundary& places = boundary(message.pass, std::min(index_of(task.stage), index_of(message.peer)));
  if (!places.wire[j].defined()) {
    return no_tensor("message");
  }
  places.inbox[j] = std::move(places.wire[j]);
  return {};
}

std::vector<MiniBatchRecord> TrainingRun::take_records() {
  const std::uint32_t every = options_.prediction_error_every;
  for (MiniBatchRecord& record : records_) {
    if (every > 0 && record.mini_batch % every == 0) {
      record.prediction_error.resize(stages_.size());
      record.unpredicted_error.resize(stages_.size());
    }
  }
  for (std::size_t k = 0; k < probes_.size(); ++k) {
    for (const PredictionError& error : probes_[k].take()) {
      MiniBatchRecord& record = records_[index_of(error.mini_batch)];
      record.prediction_error[k] = error.predicted;
      record.unpredicted_error[k] = error.unpredicted;
    }
  }
  return std::exchange(records_, {});
}

ir::Bytes TrainingRun::probe_bytes() const {
  ir::Bytes bytes = 0;
  for (const PredictionProbe& probe : probes_) {
    bytes += probe.peak_bytes();
  }
  return bytes;
}

}  // namespace xpipe::executor::nn
