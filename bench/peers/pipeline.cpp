#include "bench/peers/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/peers/flushing_order.h"
#include "bench/peers/no_overhead.h"
#include <sys/resource.h>

#include "executor/engine.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/rank_records.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace xpipe::bench {

namespace {

namespace nn = executor::nn;
using ir::index_of;
using ir::MicroBatch;
using Clock = std::chrono::steady_clock;

constexpr nn::OptimizerConfig kOptimizer{
    .kind = nn::OptimizerKind::Sgd, .learning_rate = 0.01, .momentum = 0.9};

std::unique_ptr<executor::CpuPool> two_threads() {
  return value_of(executor::CpuPool::create(
      {.devices = 2, .on_thread_start = [](ir::DeviceId) { nn::set_intra_op_threads(1); }}));
}

std::vector<std::vector<nn::Layer>> parts_of(const Sizes& sizes, const Handover& handover) {
  const nn::Model model = model_of(sizes.work, handover);
  const auto layers = static_cast<std::uint32_t>(model.layers.size());
  if (sizes.cut == 0 || sizes.cut >= layers) {
    fail("a cut after unit " + std::to_string(sizes.cut) + " of " + std::to_string(layers));
  }
  return nn::cut(model, {sizes.cut, layers - sizes.cut});
}

double seconds(ir::Nanos time) {
  return static_cast<double>(time) / 1e9;
}

}  // namespace

double page_faults_so_far() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

Pipeline::Pipeline(const std::string& policy,
                   const Sizes& sizes,
                   const Handover& handover,
                   executor::Peers* peers)
    : policy_(policy),
      sizes_(sizes),
      peers_(peers),
      parts_(parts_of(sizes, handover)),
      pool_(two_threads()) {
  wiring_ = nn::wire(
      {static_cast<std::uint32_t>(parts_[0].size()), static_cast<std::uint32_t>(parts_[1].size())},
      {});
  if (peers_ != nullptr) {
    parts_[1 - peers_->rank()].clear();
  }
  samples_.inputs = handover.inputs;
  samples_.labels = handover.labels;
  backend_ = std::make_unique<executor::CpuBackend>(*pool_);
}

const ir::Schedule& Pipeline::schedule_for(std::uint32_t mini_batches) {
  if (!schedule_ || schedule_->mini_batches != mini_batches) {
    scheduler::PolicyRegistry registry;
    policies::register_all(registry);
    registry.add(one_f_one_b_flush());
    schedule_ = std::make_unique<ir::Schedule>(
        value_of(scheduler::compile(*value_of(registry.find(policy_)),
                                    {.stages = 2,
                                     .micro_batches = sizes_.micro_batches,
                                     .mini_batches = mini_batches,
                                     .options = {}},
                                    scheduler::chain_of(2))));
    if (!run_) {
      run_ = std::make_unique<nn::TrainingRun>(parts_, samples_,
                                               nn::RunOptions{.optimizer = kOptimizer,
                                                              .predicts = nn::predicts(*schedule_),
                                                              .wiring = wiring_,
                                                              .stop_on_nan = false});
      handlers_ = run_->handlers();
      if (peers_ != nullptr) {
        peers_->set_mail(&run_->mail());
      }
    }
  }
  return *schedule_;
}

Pace Pipeline::burst(std::uint32_t mini_batches) {
  const ir::Schedule& schedule = schedule_for(std::max(3U, mini_batches));
  const std::uint32_t batch = samples_.count();
  nn::Segment segment;
  for (std::uint32_t i = 0; i < schedule.mini_batches; ++i) {
    segment.mini_batches.push_back({.begin = i * batch, .count = batch});
    for (std::uint32_t sample = 0; sample < batch; ++sample) {
      segment.order.push_back(sample);  // the same mini-batch again and again
    }
  }
  run_->begin_segment(schedule, std::move(segment));
  const double faults = page_faults_so_far();
  auto began = Clock::now();
  ir::Timeline timeline = value_of(executor::run(schedule, handlers_, *backend_, peers_));
  std::vector<nn::MiniBatchRecord> records = run_->take_records();
  if (peers_ != nullptr) {
    began = backend_->origin().value_or(began);
    require(nn::merge_timeline(*peers_, schedule, timeline, began));
    require(nn::merge_records(*peers_, records));
    if (peers_->rank() != 0) {
      return {};
    }
  }
  Pace pace = measure(timeline, records);
  pace.page_faults = (page_faults_so_far() - faults) / schedule.mini_batches;
  return pace;
}

Pipeline::SteadyPart Pipeline::steady_part(const ir::Timeline& timeline) const {
  std::vector<ir::Nanos> ends(schedule_->mini_batches, 0);
  for (const ir::Span& span : timeline.spans) {
    if (const auto* step = std::get_if<ir::Step>(&schedule_->task(span.task).payload)) {
      ir::Nanos& end = ends[index_of(step->mini_batch)];
      end = std::max(end, span.end);
    }
  }
  return {ends.front(), ends[ends.size() - 2]};
}

Pace Pipeline::measure(const ir::Timeline& timeline,
                       const std::vector<nn::MiniBatchRecord>& records) const {
  Pace pace;
  const auto [first, last] = steady_part(timeline);
  const double count = schedule_->mini_batches - 2.0;
  pace.steady_s = seconds(last - first) / count;
  pace.whole_s = seconds(ir::makespan(timeline)) / schedule_->mini_batches;
  if (peers_ == nullptr) {
    const SteadyPart ideal = steady_part(without_overhead(*schedule_, timeline));
    pace.no_overhead_s = seconds(ideal.end - ideal.begin) / count;
  }
  std::array<double, 2> predicting{};
  for (const ir::Span& span : timeline.spans) {
    const ir::Task& task = schedule_->task(span.task);
    if (schedule_->lane(task.lane).kind != ir::LaneKind::Compute) {
      continue;
    }
    const ir::Nanos inside = std::min(span.end, last) - std::max(span.start, first);
    if (inside > 0) {
      pace.busy_s[index_of(task.stage)] += seconds(inside) / count;
      if (task.kind() == ir::TaskKind::Predict) {
        predicting[index_of(task.stage)] += seconds(inside) / count;
      }
    }
  }
  pace.prediction_s = std::max(predicting[0], predicting[1]);
  for (const nn::MiniBatchRecord& record : records) {
    pace.losses.push_back(record.loss);
  }
  return pace;
}

Limit::Limit(const Sizes& sizes, const Handover& handover, std::array<std::uint32_t, 2> in_flight)
    : sizes_(sizes), in_flight_(in_flight), pool_(two_threads()) {
  const auto parts = parts_of(sizes, handover);
  for (std::size_t k = 0; k < 2; ++k) {
    stages_.push_back(std::make_unique<nn::Stage>(
        parts[k], k > 0, nn::StageOptions{.optimizer = kOptimizer, .prediction = {}}));
  }
  samples_ = static_cast<std::uint32_t>(handover.labels.size(0));
  const std::int64_t micro_batch = samples_ / sizes.micro_batches;
  input_ = handover.inputs.slice(0, 0, micro_batch).clone();
  labels_ = handover.labels.slice(0, 0, micro_batch).clone();
  middle_ = stages_[0]->evaluate(input_);
}

std::array<double, 2> Limit::burst(std::uint32_t mini_batches) {
  std::array<double, 2> paces{};
  done_ = 0;
  pool_->start(
      [&](ir::DeviceId device) { paces[index_of(device)] = run(index_of(device), mini_batches); },
      2);
  while (!pool_->wait_idle_for(std::chrono::seconds(60))) {
  }
  return paces;
}

double Limit::run(std::size_t k, std::uint32_t mini_batches) {
  nn::Stage& stage = *stages_[k];
  stage.begin_segment(1);
  ir::WeightRead newest;
  std::uint32_t next = 0;
  for (; next + 1 < in_flight_[k]; ++next) {
    forward(k, MicroBatch{next}, newest);
  }
  const auto begin = Clock::now();
  std::uint32_t made = 0;
  bool told = false;
  while (done_.load() < 2) {
    for (std::uint32_t i = 0; i < sizes_.micro_batches; ++i, ++next) {
      forward(k, MicroBatch{next}, newest);
      value_of(stage.backward(MicroBatch{next + 1 - in_flight_[k]},
                              k == 0 ? middle_ : torch::Tensor(), newest));
    }
    if (!stage.step({.mini_batch = ir::MiniBatch{newest.version}, .version = newest.version})
             .ok()) {
      fail("the limit cannot make its step");
    }
    ++newest.version;
    if (++made >= mini_batches && !told) {
      told = true;
      ++done_;
    }
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / made;
}

void Limit::forward(std::size_t k, MicroBatch j, const ir::WeightRead& weights) {
  if (k == 0) {
    value_of(stages_[0]->forward(j, input_, weights));
  } else {
    value_of(stages_[1]->forward_loss(j, middle_, labels_, 1.0 / sizes_.micro_batches, weights));
  }
}

}  // namespace xpipe::bench
