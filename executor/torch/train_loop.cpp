#include "executor/torch/train_loop.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "executor/engine.h"
#include "executor/torch/checkpoint.h"
#include "executor/torch/evaluate.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/rank_evaluation.h"
#include "scheduler/exchange_pass.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

ir::Status check_schedule(const ir::Schedule& schedule,
                          std::uint32_t stages,
                          std::uint32_t micro_batches,
                          std::uint32_t mini_batches) {
  ir::Error error{ErrorKind::Usage, {}};
  const auto expect = [&error](const char* what, std::size_t found, std::size_t wanted) {
    if (found != wanted) {
      error.diagnostics.push_back({"wrong-schedule", "schedule",
                                   "it has " + std::to_string(found) + " " + what +
                                       ", this training needs " + std::to_string(wanted)});
    }
  };
  expect("stages", schedule.stages.size(), stages);
  expect("mini-batches", schedule.mini_batches, mini_batches);
  if (schedule.micro_batches != 1) {
    expect("micro-batches a mini-batch", schedule.micro_batches, micro_batches);
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

/// When each mini-batch's last step ended (where gradients are accumulated its last backward),
/// `before` being the time of earlier segments.
void set_ends(const ir::Schedule& schedule,
              const ir::Timeline& timeline,
              ir::Nanos before,
              std::vector<MiniBatchRecord>& records) {
  for (const ir::Span& span : timeline.spans) {
    const ir::Task& task = schedule.task(span.task);
    if (task.kind() == ir::TaskKind::Step || task.kind() == ir::TaskKind::Backward ||
        task.kind() == ir::TaskKind::BackwardWeight) {
      const ir::MiniBatch i = ir::mini_batch_of(task, schedule.micro_batches);
      ir::Nanos& ended = records[index_of(i)].ended;
      ended = std::max(ended, before + span.end);
    }
  }
}

EpochRecord summary_of(std::uint32_t epoch, const EpochSums& sums) {
  const auto samples = static_cast<double>(sums.samples);
  EpochRecord summary{.epoch = epoch,
                      .train_loss = sums.loss / samples,
                      .train_accuracy = sums.accuracy / samples,
                      .train_time = sums.train_time};
  if (sums.train_time > 0) {
    summary.samples_per_s = samples * 1e9 / static_cast<double>(sums.train_time);
  }
  return summary;
}

/// A sum over replicas, or over places of a shared weight, reads gradients that another stream
/// frees.
ir::Status check_gpus(const ir::Schedule& schedule, const ComputeConfig& compute, bool several) {
  const auto has = [&schedule](ir::TaskKind kind) {
    return std::ranges::any_of(schedule.tasks,
                               [kind](const ir::Task& task) { return task.kind() == kind; });
  };
  if (compute.gpus.empty()) {
    return {};
  }
  if (several && has(ir::TaskKind::ClipNorm)) {
    return ir::make_error(ErrorKind::Usage, "no-norm-over-gpus", "--clip-norm",
                          "on GPUs of several processes the gradients of all stages have no norm; "
                          "use --device cpu, one process, or drop the option");
  }
  if (!has(ir::TaskKind::AllReduce) && !has(ir::TaskKind::SumTied)) {
    return {};
  }
  return ir::make_error(ErrorKind::Usage, "no-sums-on-gpus", "--device",
                        "gradients of replicas and of weights that stages share are summed on the "
                        "CPU only; use --device cpu, or drop --replicas and shared weights");
}

StageMemory memory_of(const Stage& stage) {
  StageMemory memory{.slots = static_cast<ir::Bytes>(stage.slot_bytes()),
                     .optimizer = stage.optimizer().state_bytes(),
                     .weight_storages = stage.weight_storages(),
                     .parameters = stage.weights().size()};
  for (const torch::Tensor& weight : stage.weights()) {
    memory.weights += static_cast<ir::Bytes>(weight.nbytes());
  }
  return memory;
}

/// What the schedule was compiled to clip to.
std::optional<double> clip_norm_of(const ir::Schedule& schedule) {
  for (const auto& [name, value] : schedule.options) {
    if (name == scheduler::kClipNormOption) {
      return std::stod(value);
    }
  }
  return std::nullopt;
}

/// The layers of each replica, in the order of ir::Replicas.
ir::Result<std::vector<std::vector<Layer>>> layers_by_replica(
    const std::vector<std::uint32_t>& replicas, const TrainLoop::MakeLayers& make_layers) {
  std::vector<std::vector<std::vector<Layer>>> by_rank;  // then by stage
  const std::uint32_t ranks = *std::ranges::max_element(replicas);
  by_rank.reserve(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    ir::Result<std::vector<std::vector<Layer>>> layers = make_layers();
    if (!layers.ok()) {
      return layers.error();
    }
    by_rank.push_back(std::move(layers).value());
  }
  std::vector<std::vector<Layer>> layers;
  for (std::size_t k = 0; k < replicas.size(); ++k) {
    for (std::uint32_t rank = 0; rank < replicas[k]; ++rank) {
      layers.push_back(std::move(by_rank[rank].at(k)));
    }
  }
  return layers;
}

/// Nanoseconds since 1970 of a moment of the steady clock.
ir::Nanos wall_clock(std::chrono::steady_clock::time_point moment) {
  const auto ago = std::chrono::steady_clock::now() - moment;
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch() - ago)
      .count();
}

}  // namespace

ir::Result<const ir::Schedule*> ScheduleCache::get(std::uint32_t micro_batches,
                                                   std::uint32_t mini_batches) {
  const auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.micro_batches == micro_batches && entry.mini_batches == mini_batches;
  });
  if (known != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, known);
    return &entries_.front().schedule;
  }
  ir::Result<ir::Schedule> schedule = source_(micro_batches, mini_batches);
  if (!schedule.ok()) {
    return schedule.error();
  }
  if (ir::Status status =
          check_schedule(schedule.value(), facts_.stages, micro_batches, mini_batches);
      !status.ok()) {
    return status.error();
  }
  entries_.push_front({micro_batches, mini_batches, std::move(schedule).value()});
  if (entries_.size() > kKept) {
    entries_.pop_back();
  }
  return &entries_.front().schedule;
}

TrainLoop::TrainLoop(const TrainInputs& inputs,
                     const ScheduleSource& source,
                     const TrainCallbacks& callbacks)
    : inputs_(inputs), callbacks_(callbacks), schedules_(source, inputs.facts) {}

std::vector<SegmentPlan> TrainLoop::segments_of(const Position& from) const {
  return segments_of_epoch(inputs_.batches, micro_batches_, inputs_.checkpoints.every_mini_batches,
                           from);
}

/// What a policy refuses is said before the work: a schedule of each T is compiled here.
ir::Status TrainLoop::plan() {
  const TrainConfig& config = inputs_.config;
  micro_batches_ = config.micro_batches;
  const std::vector<SegmentPlan> at_first = segments_of({});  // T may be another from below on
  const SegmentPlan main = *std::ranges::max_element(at_first, {}, &SegmentPlan::mini_batches);
  const ir::Result<const ir::Schedule*> schedule =
      schedules_.get(main.micro_batches, main.mini_batches);
  if (!schedule.ok()) {
    return schedule.status();
  }
  micro_batches_ = schedule.value()->micro_batches;
  free_settings_ = free_settings(config, inputs_.facts, inputs_.checkpoints, *schedule.value());
  ranks_ = rank_plan(callbacks_.peers, *schedule.value());
  options_ = {.optimizer = config.optimizer,
              .prediction = prediction_form(config, *schedule.value()),
              .clip_norm = clip_norm_of(*schedule.value()),
              .ties = inputs_.facts.ties,
              .wiring = inputs_.facts.wiring,
              .replicas = replicas_of_stages(*schedule.value()),
              .seed = config.seed,
              .loss = config.recipe.loss,
              .loss_reduction = config.recipe.loss_reduction,
              .stop_on_nan = config.stop_on_nan,
              .prediction_error_every = config.prediction_error_every,
              .interrupted = callbacks_.interrupted,
              .on_mini_batch = callbacks_.on_mini_batch,
              .compute = config.compute,
              .time_out = config.time_out,
              .replica_devices = replica_devices(*schedule.value()),
              .is_remote = remote_devices(callbacks_.peers),
              .gpu_way = callbacks_.gpu_way,
              .elsewhere = replicas_elsewhere(callbacks_.peers, ranks_)};
  if (ir::Status status =
          check_gpus(*schedule.value(), config.compute, callbacks_.peers != nullptr);
      !status.ok()) {
    return status;
  }
  for (const SegmentPlan& segment : segments_of({})) {
    const ir::Result<const ir::Schedule*> one =
        schedules_.get(segment.micro_batches, segment.mini_batches);
    if (!one.ok()) {
      ir::Error error = one.error();
      if (segment.micro_batches < micro_batches_) {
        error.diagnostics.push_back(
            {"last-batch", "--last-batch",
             "an epoch's last mini-batch has " + std::to_string(inputs_.facts.last_batch_samples) +
                 " samples and runs with as many micro-batches, which the policy refuses; leave "
                 "it out with --last-batch drop"});
      }
      return error;
    }
    options_.predicts = options_.predicts || predicts(*one.value());
    options_.splits_backward = options_.splits_backward || splits_backward(*one.value());
  }
  return {};
}

ir::Result<TrainResult> TrainLoop::run(const MakeLayers& make_layers, Backend& backend) {
  const TrainConfig& config = inputs_.config;
  if (ir::Status status = plan(); !status.ok()) {
    return status.error();
  }
  ir::Result<std::vector<std::vector<Layer>>> layers =
      layers_by_replica(options_.replicas, make_layers);
  if (!layers.ok()) {
    return layers.error();
  }
  const IntraOpThreads threads(config.intra_op_threads);
  Peers* const peers = callbacks_.peers;
  for (std::size_t r = 0; r < options_.elsewhere.size(); ++r) {
    if (options_.elsewhere[r]) {
      layers.value()[r].clear();
    }
  }
  run_ = std::make_unique<TrainingRun>(std::move(layers).value(), *inputs_.data.train, options_);
  handlers_ = run_->handlers();
  if (peers != nullptr) {
    peers->set_mail(&run_->mail());
  }
  if (callbacks_.wrap_handlers) {
    callbacks_.wrap_handlers(handlers_);
  }
  Position at;
  EpochSums sums;
  if (const auto& resume = inputs_.checkpoints.resume) {
    if (ir::Status status = load(*resume); !status.ok()) {
      return status.error();
    }
    at = resume->manifest.position;
    sums = resume->manifest.epoch;
    result_.resumed_time = sums.train_time;
  }
  const std::uint32_t last = config.epochs - 1;
  result_.timeline_epoch = std::clamp(config.trace_epoch.value_or(last), at.epoch, last);
  for (; at.epoch < config.epochs; at = {.epoch = at.epoch + 1, .mini_batch = 0}) {
    if (ir::Status status = train_epoch(at, sums, backend); !status.ok()) {
      return status.error();
    }
    sums = {};
  }
  if (!config.checkpoint.export_file.empty()) {
    if (ir::Status status = export_to(config.checkpoint.export_file); !status.ok()) {
      return status.error();
    }
  }
  const std::vector<Stage*> stages = run_->first_replicas();
  for (const Stage* stage : stages) {
    result_.memory.push_back(memory_of(*stage));
  }
  result_.probe_bytes = run_->probe_bytes();
  if (peers == nullptr) {
    result_.weights_hash = weights_hash(stages);
    return std::move(result_);
  }
  if (ir::Status merged = merge_memory(*peers, ranks_.owners, result_.memory, result_.probe_bytes);
      !merged.ok()) {
    return merged.error();
  }
  const ir::Result<std::uint64_t> hash = weights_hash_over_ranks(*peers, ranks_.owners, stages);
  if (!hash.ok()) {
    return hash.error();
  }
  result_.weights_hash = hash.value();
  return std::move(result_);
}

ir::Status TrainLoop::train_epoch(const Position& from, EpochSums sums, Backend& backend) {
  std::vector<MiniBatchRecord> records;
  Position at = from;
  for (const SegmentPlan& segment : segments_of(from)) {
    if (ir::Status status = train_segment(segment, backend, records, sums); !status.ok()) {
      return status;
    }
    at.mini_batch += segment.mini_batches;
    if (at.mini_batch < inputs_.facts.mini_batches) {
      if (ir::Status status = write_checkpoint(at, sums); !status.ok()) {
        return status;
      }
    }
  }
  if (ir::Status status = finish_epoch(from.epoch, sums, std::move(records)); !status.ok()) {
    return status;
  }
  // After the evaluation, so that an epoch whose checkpoint is there has been reported.
  return write_checkpoint({.epoch = from.epoch + 1, .mini_batch = 0}, {});
}

ir::Status TrainLoop::finish_epoch(std::uint32_t epoch,
                                   const EpochSums& sums,
                                   std::vector<MiniBatchRecord> records) {
  const ir::Result<Evaluation> test =
      callbacks_.peers == nullptr
          ? evaluate(run_->first_replicas(), *inputs_.data.test, inputs_.config.recipe.loss)
          : evaluate_over_ranks(*callbacks_.peers, ranks_.owners, run_->first_replicas(),
                                *inputs_.data.test, inputs_.config.recipe.loss);
  if (!test.ok()) {
    return test.status();
  }
  EpochRecord summary = summary_of(epoch, sums);
  summary.test_loss = test.value().loss;
  summary.test_accuracy = test.value().accuracy;
  if (callbacks_.on_epoch) {
    callbacks_.on_epoch(summary, records);
  }
  result_.epochs.push_back(summary);
  std::ranges::move(records, std::back_inserter(result_.mini_batches));
  return {};
}

ir::Status TrainLoop::complete_losses() {
  if (!ranks_.losses_are_apart) {
    return {};
  }
  const auto others = gather_losses(*callbacks_.peers, run_->open_losses());
  return others.ok() ? run_->add_losses(others.value()) : others.status();
}

ir::Status TrainLoop::train_segment(const SegmentPlan& segment,
                                    Backend& backend,
                                    std::vector<MiniBatchRecord>& records,
                                    EpochSums& sums) {
  const ir::Result<const ir::Schedule*> found =
      schedules_.get(segment.micro_batches, segment.mini_batches);
  if (!found.ok()) {
    return found.status();
  }
  const ir::Schedule& schedule = *found.value();
  const auto begin = inputs_.batches.mini_batches.begin() + segment.first;
  run_->begin_segment(
      schedule,
      {.epoch = segment.epoch,
       .first = segment.first,
       .first_of_run = std::uint64_t{segment.epoch} * inputs_.facts.mini_batches + segment.first,
       .order = epoch_order(inputs_.data.train->count(), inputs_.config.seed, segment.epoch),
       .mini_batches = {begin, begin + segment.mini_batches}});
  Peers* const peers = callbacks_.peers;
  auto began = std::chrono::steady_clock::now();
  ir::Result<ir::Timeline> timeline = executor::run(schedule, handlers_, backend, peers);
  if (!timeline.ok()) {
    return timeline.status();
  }
  began = backend.origin().value_or(began);
  if (ir::Status status = run_->collect_losses(true); !status.ok()) {
    return status;
  }
  if (ir::Status status = complete_losses(); !status.ok()) {
    return status;
  }
  std::vector<MiniBatchRecord> done = run_->take_records();
  if (peers != nullptr) {
    if (ir::Status merged = merge_timeline(*peers, schedule, timeline.value(), began);
        !merged.ok()) {
      return merged;
    }
    if (ir::Status merged = merge_records(*peers, done); !merged.ok()) {
      return merged;
    }
  }
  set_ends(schedule, timeline.value(), sums.train_time, done);
  sums.train_time += ir::makespan(timeline.value());
  for (const MiniBatchRecord& record : done) {
    sums.samples += record.samples;
    sums.loss += record.loss * record.samples;
    sums.accuracy += record.accuracy * record.samples;
  }
  std::ranges::move(done, std::back_inserter(records));
  const bool is_longest = segment.epoch == result_.timeline_epoch &&
                          segment.mini_batches > result_.schedule.mini_batches;
  if (is_longest) {
    result_.timeline_first = segment.first;
    result_.schedule = schedule;
    result_.timeline = std::move(timeline.value());
    result_.timeline_began = wall_clock(began);
  }
  return {};
}

}  // namespace xpipe::executor::nn
