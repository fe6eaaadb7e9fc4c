#include "executor/torch/training_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <c10/util/Exception.h>

#include "ir/task.h"
#include "scheduler/recompute_pass.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;
using ir::Pass;

bool has(const ir::Schedule& schedule, ir::TaskKind kind) {
  return std::ranges::any_of(schedule.tasks,
                             [kind](const ir::Task& task) { return task.kind() == kind; });
}

ir::Error torch_failed(std::string what) {
  return ir::make_error(ErrorKind::Runtime, "torch-failed", "", std::move(what));
}

ir::Error no_tensor(const char* place) {
  return ir::make_error(ErrorKind::Internal, "no-tensor", "",
                        std::string("its ") + place + " has not arrived");
}

std::size_t place_in(const std::vector<std::size_t>& producers, std::size_t producer) {
  return static_cast<std::size_t>(std::ranges::find(producers, producer) - producers.begin());
}

/// Of `tensors`, which are those of `producers`, those of `wanted`.
Tensors picked(const Tensors& tensors,
               const std::vector<std::size_t>& producers,
               const std::vector<std::size_t>& wanted) {
  Tensors some;
  some.reserve(wanted.size());
  for (const std::size_t producer : wanted) {
    some.push_back(tensors[place_in(producers, producer)]);
  }
  return some;
}

std::optional<torch::Dtype> compute_type_of(const RunOptions& options) {
  return options.compute.dtype == ComputeType::BFloat16 ? std::optional(torch::kBFloat16)
                                                        : std::nullopt;
}

std::vector<std::uint32_t> layers_of_stages(const std::vector<std::vector<Layer>>& parts,
                                            const std::vector<std::uint32_t>& replicas) {
  std::vector<std::uint32_t> layers;
  std::size_t first = 0;
  for (const std::uint32_t count : replicas) {
    layers.push_back(first < parts.size() ? static_cast<std::uint32_t>(parts[first].size()) : 0);
    first += count;
  }
  return layers;
}

torch::Device device_of(const RunOptions& options, std::size_t replica) {
  const std::vector<std::uint32_t>& gpus = options.compute.gpus;
  if (gpus.empty()) {
    return torch::kCPU;
  }
  const std::uint32_t gpu = gpus[index_of(options.replica_devices.at(replica)) % gpus.size()];
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(gpu)};
}

}  // namespace

bool predicts(const ir::Schedule& schedule) {
  return has(schedule, ir::TaskKind::Predict);
}

bool splits_backward(const ir::Schedule& schedule) {
  return has(schedule, ir::TaskKind::BackwardInput);
}

std::vector<std::uint32_t> replicas_of_stages(const ir::Schedule& schedule) {
  std::vector<std::uint32_t> replicas;
  replicas.reserve(schedule.stages.size());
  for (const ir::StageInfo& stage : schedule.stages) {
    replicas.push_back(static_cast<std::uint32_t>(stage.devices.size()));
  }
  return replicas;
}

std::vector<ir::DeviceId> replica_devices(const ir::Schedule& schedule) {
  std::vector<ir::DeviceId> devices;
  for (const ir::StageInfo& stage : schedule.stages) {
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  return devices;
}

TrainingRun::TrainingRun(std::vector<std::vector<Layer>> parts,
                         const SampleSource& samples,
                         RunOptions options)
    : samples_(samples), loader_(samples, options.time_out), options_(std::move(options)) {
  if (options_.replicas.empty()) {
    options_.replicas.assign(parts.size(), 1);
  }
  if (options_.wiring.empty()) {
    XPIPE_CHECK(std::ranges::none_of(parts, [](const auto& part) { return part.empty(); }))
        << "a stage that another process holds has no layers here to tell the wiring from";
    options_.wiring = wire(layers_of_stages(parts, options_.replicas), {});
  }
  probes_.resize(options_.replicas.size());
  std::size_t next = 0;
  for (std::size_t k = 0; k < options_.replicas.size(); ++k) {
    first_.push_back(next);
    for (std::uint32_t r = 0; r < options_.replicas[k]; ++r, ++next) {
      XPIPE_CHECK(next < parts.size()) << "layers of only " << parts.size() << " replicas";
      stages_.emplace_back(std::move(parts[next]), k > 0,
                           StageOptions{.optimizer = options_.optimizer,
                                        .prediction = options_.prediction,
                                        .predicts = options_.predicts,
                                        .seed = options_.seed,
                                        .loss = options_.loss,
                                        .splits_backward = options_.splits_backward,
                                        .wiring = options_.wiring[k],
                                        .compute_type = compute_type_of(options_),
                                        .device = device_of(options_, next),
                                        .prediction_kernel = options_.compute.prediction_kernel});
    }
  }
}

void TrainingRun::begin_segment(const ir::Schedule& schedule, Segment segment) {
  schedule_ = &schedule;
  segment_ = std::move(segment);
  replicas_.emplace(schedule);
  for (std::size_t r = 0; r < stages_.size(); ++r) {
    stages_[r].begin_segment(
        schedule.stage(replicas_->stage(r)).slots,
        {.mini_batch = segment_.first_of_run, .micro_batches = schedule.micro_batches});
  }
  exchange_.begin_segment();
  if (!options_.elsewhere.empty()) {
    begin_rank_exchanges();
  }
  read_schedule();
  std::vector<std::uint32_t> samples;
  samples.reserve(segment_.mini_batches.size());
  for (const SampleRange& range : segment_.mini_batches) {
    samples.push_back(range.count);
  }
  step_weights_ = StepWeights(schedule, samples, options_.loss_reduction);
  mailboxes_.begin_segment(schedule, options_.wiring);
  losses_.assign(std::size_t{schedule.micro_batches} * schedule.mini_batches, MicroBatchLoss{});
  computed_.clear();
  records_.assign(schedule.mini_batches, MiniBatchRecord{});
  for (std::uint32_t i = 0; i < schedule.mini_batches; ++i) {
    records_[i].epoch = segment_.epoch;
    records_[i].mini_batch = segment_.first + i;
  }
  begin_loader();
}

/// Which micro-batches are recomputed, and how.
void TrainingRun::read_schedule() {
  const std::size_t places =
      schedule_->stages.size() * schedule_->micro_batches * schedule_->mini_batches;
  recomputed_.assign(has(*schedule_, ir::TaskKind::Recompute) ? places : 0, false);
  // Layers go one by one where the schedule says so; not with split backwards, whose weight part
  // needs the graphs of all of them.
  const std::pair by_layer{std::string(scheduler::kRecomputeOption), std::string("layer")};
  const bool one_by_one =
      std::ranges::find(schedule_->options, by_layer) != schedule_->options.end();
  kept_for_recompute_ = one_by_one && !options_.splits_backward ? Keep::LayerInputs : Keep::Input;
  for (const ir::Task& task : schedule_->tasks) {
    if (task.kind() == ir::TaskKind::Recompute) {
      recomputed_[place_of(index_of(task.stage), index_of(*ir::micro_batch_of(task)))] = true;
    }
  }
}

std::size_t TrainingRun::place_of(std::size_t stage, std::uint32_t micro_batch) const {
  return stage * schedule_->micro_batches * schedule_->mini_batches + micro_batch;
}

Keep TrainingRun::keep_of(const ir::Task& task) const {
  const bool is_recomputed =
      !recomputed_.empty() &&
      recomputed_[place_of(index_of(task.stage), index_of(*ir::micro_batch_of(task)))];
  return is_recomputed ? kept_for_recompute_ : Keep::Graph;
}

std::vector<Stage*> TrainingRun::first_replicas() {
  std::vector<Stage*> first;
  first.reserve(first_.size());
  for (const std::size_t r : first_) {
    first.push_back(&stages_[r]);
  }
  return first;
}

bool TrainingRun::is_first_replica(const ir::Task& task) const {
  return replicas_->of(task) == replicas_->begin(task.stage);
}

std::uint64_t TrainingRun::steps() const {
  std::size_t r = 0;
  while (r + 1 < stages_.size() && !is_here(r)) {
    ++r;
  }
  return stages_[r].optimizer().steps();
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
  set(ir::TaskKind::Recompute, &TrainingRun::recompute);
  set(ir::TaskKind::Backward, &TrainingRun::backward);
  set(ir::TaskKind::BackwardInput, &TrainingRun::backward_input);
  set(ir::TaskKind::BackwardWeight, &TrainingRun::backward_weight);
  set(ir::TaskKind::Predict, &TrainingRun::predict);
  set(ir::TaskKind::Step, &TrainingRun::step);
  set(ir::TaskKind::Stash, &TrainingRun::stash);
  set(ir::TaskKind::Release, &TrainingRun::release);
  set(ir::TaskKind::Send, &TrainingRun::send);
  set(ir::TaskKind::Receive, &TrainingRun::receive);
  set(ir::TaskKind::AllReduce, &TrainingRun::all_reduce);
  set(ir::TaskKind::SumTied, &TrainingRun::sum_tied);
  set(ir::TaskKind::ClipNorm, &TrainingRun::clip_norm);
  return table;
}

SampleRange TrainingRun::range_of(std::uint32_t micro_batch) const {
  return micro_batch_range(segment_.mini_batches[micro_batch / schedule_->micro_batches],
                           schedule_->micro_batches, micro_batch % schedule_->micro_batches);
}

std::span<const std::uint32_t> TrainingRun::samples_of(std::uint32_t micro_batch) const {
  const SampleRange range = range_of(micro_batch);
  return std::span(segment_.order).subspan(range.begin, range.count);
}

void TrainingRun::begin_loader() {
  std::vector<std::vector<std::uint32_t>> micro_batches(std::size_t{schedule_->micro_batches} *
                                                        schedule_->mini_batches);
  for (std::uint32_t j = 0; j < micro_batches.size(); ++j) {
    micro_batches[j].assign(samples_of(j).begin(), samples_of(j).end());
  }
  std::vector<std::size_t> order;  // of the forwards of the first stage that are done here
  for (const ir::Task& task : schedule_->tasks) {
    if (task.kind() == ir::TaskKind::Forward && index_of(task.stage) == 0 &&
        is_here(replicas_->of(task))) {
      order.push_back(index_of(*ir::micro_batch_of(task)));
    }
  }
  std::ranges::sort(order);
  loader_.begin(segment_.epoch, std::move(micro_batches), std::move(order));
}

/// Samples, or what earlier stages have sent, in the order of the imports.
ir::Result<Tensors> TrainingRun::inputs_of(std::size_t stage, std::uint32_t micro_batch) {
  if (stage == 0) {
    ir::Result<torch::Tensor> samples = loader_.input(micro_batch);
    return samples.ok() ? ir::Result<Tensors>(Tensors{std::move(samples).value()})
                        : ir::Result<Tensors>(samples.error());
  }
  const StageWiring& wiring = options_.wiring[stage];
  Tensors inputs(wiring.imports.size());
  for (const StagePort& port : wiring.from) {
    Mailboxes::Message message = mailboxes_.take(Pass::Forward, port.stage, stage, micro_batch);
    if (message.size() != port.producers.size()) {
      return no_tensor("input");
    }
    for (std::size_t i = 0; i < message.size(); ++i) {
      inputs[place_in(wiring.imports, port.producers[i])] = std::move(message[i]);
    }
  }
  return inputs;
}

ir::Status TrainingRun::forward(const ir::Task& task) {
  const auto& pass = std::get<ir::Forward>(task.payload);
  const std::size_t k = index_of(task.stage);
  const std::uint32_t j = index_of(pass.micro_batch);
  const std::uint32_t i = j / schedule_->micro_batches;
  const torch::Device device = stage_of(task).device();
  ir::Result<Tensors> arrived = inputs_of(k, j);
  if (!arrived.ok()) {
    return arrived.error();
  }
  Tensors inputs = std::move(arrived).value();
  // A batch comes from the host's memory; what another stage has sent is there already.
  for (torch::Tensor& input : inputs) {
    input = moved_to(input, device);
  }
  const StageWiring& wiring = options_.wiring[k];
  if (!wiring.to.empty()) {
    const ir::Result<Tensors> exports =
        stage_of(task).forward(pass.micro_batch, inputs, pass.weights, keep_of(task));
    for (std::size_t p = 0; exports.ok() && p < wiring.to.size(); ++p) {
      mailboxes_.post(Pass::Forward, k, wiring.to[p].stage, j,
                      picked(exports.value(), wiring.exports, wiring.to[p].producers));
    }
    return exports.status();
  }
  const std::span<const std::uint32_t> samples = samples_of(j);
  ir::Result<MicroBatchLoss> loss = stage_of(task).forward_loss(
      pass.micro_batch, inputs, moved_to(samples_.label_batch(samples), device),
      step_weights_.share(ir::MiniBatch{i}, static_cast<std::uint32_t>(samples.size())),
      pass.weights, keep_of(task));
  return loss.ok() ? record_loss(i, j, std::move(loss).value()) : loss.status();
}

ir::Status TrainingRun::recompute(const ir::Task& task) {
  const auto& pass = std::get<ir::Recompute>(task.payload);
  return stage_of(task).recompute(pass.micro_batch, pass.weights);
}

/// What later stages have sent for the backward of micro-batch `j`, in the order of the exports; a
/// tensor that several have read gets the sum, the latest stage's first, as autograd would have it.
/// One that is undefined behind the last stage.
ir::Result<Tensors> TrainingRun::take_gradients(std::size_t stage, std::uint32_t j) {
  const StageWiring& wiring = options_.wiring[stage];
  Tensors gradients(wiring.exports.size());
  for (std::size_t p = wiring.to.size(); p-- > 0;) {
    const StagePort& port = wiring.to[p];
    Mailboxes::Message message = mailboxes_.take(Pass::Backward, port.stage, stage, j);
    if (message.size() != port.producers.size()) {
      return no_tensor("gradient");
    }
    for (std::size_t i = 0; i < message.size(); ++i) {
      adopt(message[i]);
      add_gradient(gradients[place_in(wiring.exports, port.producers[i])], message[i]);
    }
  }
  return gradients;
}

ir::Status TrainingRun::backward(const ir::Task& task) {
  const auto& pass = std::get<ir::Backward>(task.payload);
  return send_down(task, pass.micro_batch, pass.weights, &Stage::backward);
}

ir::Status TrainingRun::backward_input(const ir::Task& task) {
  const auto& pass = std::get<ir::BackwardInput>(task.payload);
  return send_down(task, pass.micro_batch, pass.weights, &Stage::backward_input);
}

ir::Status TrainingRun::send_down(const ir::Task& task,
                                  ir::MicroBatch micro_batch,
                                  const ir::WeightRead& weights,
                                  InputGradients compute) {
  const std::size_t k = index_of(task.stage);
  const std::uint32_t j = index_of(micro_batch);
  const ir::Result<Tensors> gradients = take_gradients(k, j);
  if (!gradients.ok()) {
    return gradients.error();
  }
  const ir::Result<Tensors> down =
      (stage_of(task).*compute)(micro_batch, gradients.value(), weights);
  const StageWiring& wiring = options_.wiring[k];
  for (std::size_t p = 0; down.ok() && p < wiring.from.size(); ++p) {
    mailboxes_.post(Pass::Backward, k, wiring.from[p].stage, j,
                    picked(down.value(), wiring.imports, wiring.from[p].producers));
  }
  return down.status();
}

ir::Status TrainingRun::backward_weight(const ir::Task& task) {
  const auto& pass = std::get<ir::BackwardWeight>(task.payload);
  return stage_of(task).backward_weight(pass.micro_batch, pass.weights);
}

ir::Status TrainingRun::predict(const ir::Task& task) {
  const auto& prediction = std::get<ir::Predict>(task.payload);
  Stage& stage = stage_of(task);
  if (ir::Status status = stage.predict(prediction); !status.ok()) {
    return status;
  }
  const std::uint32_t every = options_.prediction_error_every;
  if (every > 0 && is_first_replica(task) && prediction.pass == Pass::Forward &&
      (segment_.first + index_of(prediction.mini_batch)) % every == 0) {
    probes_[index_of(task.stage)].keep(prediction.mini_batch,
                                       prediction.version + prediction.distance,
                                       stage.weights(prediction.into), stage.weights());
  }
  return {};
}

ir::Status TrainingRun::step(const ir::Task& task) {
  const auto& step = std::get<ir::Step>(task.payload);
  Stage& stage = stage_of(task);
  if (const double factor = step_weights_.factor(task.stage, step.mini_batch); factor != 1.0) {
    stage.scale_gradients(factor);
  }
  if (ir::Status status = stage.step(step); !status.ok()) {
    return status;
  }
  if (options_.prediction_error_every > 0 && is_first_replica(task)) {
    probes_[index_of(task.stage)].stepped(stage.version(), stage.weights());
  }
  return {};
}

ir::Status TrainingRun::stash(const ir::Task& task) {
  return stage_of(task).stash(std::get<ir::Stash>(task.payload));
}

ir::Status TrainingRun::release(const ir::Task& task) {
  return stage_of(task).release(std::get<ir::Release>(task.payload));
}

ir::Bytes TrainingRun::probe_bytes() const {
  ir::Bytes bytes = 0;
  for (const PredictionProbe& probe : probes_) {
    bytes += probe.peak_bytes();
  }
  return bytes;
}

}  // namespace xpipe::executor::nn
