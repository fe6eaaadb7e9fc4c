// What a training run says of its mini-batches: losses as they arrive, prediction errors at the
// end.
#include <cmath>
#include <mutex>
#include <string>
#include <utility>

#include "executor/torch/training_run.h"

namespace xpipe::executor::nn {

using ir::ErrorKind;
using ir::index_of;

ir::Status TrainingRun::check_loss(std::uint32_t mini_batch, std::uint32_t micro_batch) const {
  const double mean = losses_[micro_batch].mean_and_correct.first();
  if (!options_.stop_on_nan || std::isfinite(mean)) {
    return {};
  }
  return ir::make_error(ErrorKind::Runtime, "loss-not-finite", "",
                        "the loss is " + std::to_string(mean) + " in mini-batch " +
                            std::to_string(segment_.first + mini_batch) + " of epoch " +
                            std::to_string(segment_.epoch) + " (micro-batch " +
                            std::to_string(micro_batch) +
                            "); lower --lr, or go on regardless with --no-stop-on-nan");
}

ir::Status TrainingRun::record_loss(std::uint32_t mini_batch,
                                    std::uint32_t micro_batch,
                                    MicroBatchLoss loss) {
  const std::lock_guard lock(record_mutex_);
  const bool is_there = loss.mean_and_correct.are_there();
  MiniBatchRecord& record = records_[mini_batch];
  record.samples += loss.samples;
  losses_[micro_batch] = std::move(loss);
  if (is_there) {
    if (ir::Status status = check_loss(mini_batch, micro_batch); !status.ok()) {
      return status;
    }
  }
  if (record.samples == segment_.mini_batches[mini_batch].count) {
    computed_.push_back(mini_batch);
  }
  return collect_computed(false);
}

ir::Status TrainingRun::collect_losses(bool wait) {
  const std::lock_guard lock(record_mutex_);
  return collect_computed(wait);
}

/// Requires: record_mutex_ held.
ir::Status TrainingRun::collect_computed(bool wait) {
  while (!computed_.empty()) {
    const std::uint32_t mini_batch = computed_.front();
    const std::uint32_t first = mini_batch * schedule_->micro_batches;
    for (std::uint32_t j = first; j < first + schedule_->micro_batches; ++j) {
      if (!wait && !losses_[j].mean_and_correct.are_there()) {
        return {};
      }
    }
    computed_.pop_front();
    if (ir::Status status = end_record(mini_batch); !status.ok()) {
      return status;
    }
  }
  return {};
}

/// In the order of micro-batches, whichever replica was faster.
ir::Status TrainingRun::end_record(std::uint32_t mini_batch) {
  MiniBatchRecord& record = records_[mini_batch];
  const std::uint32_t first = mini_batch * schedule_->micro_batches;
  for (std::uint32_t j = first; j < first + schedule_->micro_batches; ++j) {
    if (ir::Status status = check_loss(mini_batch, j); !status.ok()) {
      return status;
    }
    record.loss += losses_[j].mean_and_correct.first() * losses_[j].samples;
    record.accuracy += losses_[j].mean_and_correct.second();
    losses_[j] = {};  // its tensor is not held to the end of the segment
  }
  record.loss /= record.samples;
  record.accuracy /= record.samples;
  if (options_.on_mini_batch) {
    options_.on_mini_batch(record);
  }
  return {};
}

std::vector<LossPart> TrainingRun::open_losses() const {
  std::vector<LossPart> parts;
  for (std::uint32_t j = 0; j < losses_.size(); ++j) {
    if (losses_[j].samples > 0) {  // those of a whole record are given up
      parts.push_back({.micro_batch = j,
                       .samples = losses_[j].samples,
                       .mean = losses_[j].mean_and_correct.first(),
                       .correct = losses_[j].mean_and_correct.second()});
    }
  }
  return parts;
}

ir::Status TrainingRun::add_losses(const std::vector<LossPart>& parts) {
  for (const LossPart& part : parts) {
    if (part.micro_batch >= losses_.size()) {
      return ir::make_error(ErrorKind::Runtime, "bad-message", "",
                            "another rank has a loss of micro-batch " +
                                std::to_string(part.micro_batch) + " of " +
                                std::to_string(losses_.size()));
    }
    MicroBatchLoss loss;
    loss.mean_and_correct = PendingNumbers(torch::tensor(part.mean, torch::kFloat64),
                                           torch::tensor(part.correct, torch::kFloat64));
    loss.samples = part.samples;
    if (ir::Status status = record_loss(part.micro_batch / schedule_->micro_batches,
                                        part.micro_batch, std::move(loss));
        !status.ok()) {
      return status;
    }
  }
  return {};
}

std::vector<MiniBatchRecord> TrainingRun::take_records() {
  const std::uint32_t every = options_.prediction_error_every;
  for (MiniBatchRecord& record : records_) {
    if (every > 0 && record.mini_batch % every == 0) {
      record.prediction_error.resize(probes_.size());
      record.unpredicted_error.resize(probes_.size());
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

}  // namespace xpipe::executor::nn
