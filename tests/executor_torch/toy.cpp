#include "tests/executor_torch/toy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {

namespace {

constexpr std::int64_t kClasses = 5;

at::Generator generator(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace

nn::Model toy_model(std::uint64_t seed, torch::Dtype dtype) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): five layers' worth of names
  nn::Model model{.name = "toy", .layers = {}};
  model.layers.push_back(
      {.name = "a", .module = Sequential(Conv2d(Conv2dOptions(1, 3, 3).padding(1)), ReLU())});
  model.layers.push_back(
      {.name = "b", .module = Sequential(Conv2d(Conv2dOptions(3, 4, 3)), Tanh(), MaxPool2d(2))});
  model.layers.push_back(
      {.name = "c",
       .module = Sequential(Flatten(), Linear(LinearOptions(36, 12).bias(false)), Tanh())});
  model.layers.push_back(
      {.name = "d", .module = Sequential(Linear(LinearOptions(12, 10).bias(false)), Tanh())});
  model.layers.push_back({.name = "e", .module = Sequential(Linear(10, kClasses))});
  const torch::NoGradGuard no_grad;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    at::Generator random = generator(nn::layer_seed(seed, l));
    model.layers[l].module->to(dtype);
    for (torch::Tensor& parameter : model.layers[l].module->parameters()) {
      parameter.uniform_(-0.5, 0.5, random);
    }
  }
  return model;
}

nn::Samples toy_samples(std::uint32_t count, torch::Dtype dtype) {
  at::Generator random = generator(99);
  nn::Samples samples;
  samples.inputs = torch::randn({count, 1, 8, 8}, random, torch::kFloat64).to(dtype);
  samples.labels = samples.inputs.flatten(1).slice(1, 0, kClasses).argmax(1);
  return samples;
}

std::vector<std::uint32_t> toy_partition(std::uint32_t stages) {
  switch (stages) {
    case 1:
      return {5};
    case 2:
      return {2, 3};
    case 3:
      return {2, 1, 2};
    case 4:
      return {1, 1, 1, 2};
    default:
      return {1, 1, 1, 1, 1};
  }
}

ir::Schedule compiled(const std::string& policy,
                      std::uint32_t stages,
                      std::uint32_t micro_batches,
                      std::uint32_t mini_batches,
                      const scheduler::Options& options,
                      const scheduler::Passes& passes) {
  scheduler::PolicyRegistry registry;
  policies::register_all(registry);
  const auto found = registry.find(policy);
  REQUIRE(found.ok());
  ir::Result<ir::Schedule> schedule = scheduler::compile(*found.value(),
                                                         {.stages = stages,
                                                          .micro_batches = micro_batches,
                                                          .mini_batches = mini_batches,
                                                          .options = options},
                                                         scheduler::chain_of(stages), passes);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  return std::move(schedule.value());
}

nn::Segment toy_segment(const ToyTraining& training, std::uint32_t epoch) {
  nn::Segment segment;
  segment.epoch = epoch;
  segment.first_of_run = std::uint64_t{epoch} * training.mini_batches.size();
  std::uint32_t begin = 0;
  for (const std::uint32_t count : training.mini_batches) {
    segment.mini_batches.push_back({begin, count});
    begin += count;
  }
  segment.order.resize(begin);
  std::iota(segment.order.begin(), segment.order.end(), 0U);
  return segment;
}

std::vector<std::vector<nn::Layer>> layers_by_replica(const ir::Schedule& schedule,
                                                      const std::vector<std::uint32_t>& partition,
                                                      const std::function<nn::Model()>& make) {
  std::vector<std::vector<nn::Layer>> layers;
  for (std::size_t k = 0; k < partition.size(); ++k) {
    for (std::size_t r = 0; r < schedule.stages[k].devices.size(); ++r) {
      layers.push_back(nn::cut(make(), partition)[k]);
    }
  }
  return layers;
}

scheduler::Passes replicated(const std::vector<std::uint32_t>& replicas) {
  const auto layout = scheduler::resolve_layout(
      {.stages = static_cast<std::uint32_t>(replicas.size()), .replicas = replicas});
  REQUIRE(layout.ok());
  return {.layout = layout.value()};
}

std::unique_ptr<ToyRun> toy_run(const ir::Schedule& schedule,
                                const ToyTraining& training,
                                nn::RunOptions options) {
  auto toy = std::make_unique<ToyRun>();
  toy->schedule = schedule;
  toy->samples =
      toy_samples(std::accumulate(training.mini_batches.begin(), training.mini_batches.end(), 0U),
                  training.dtype);
  options.optimizer = training.optimizer;
  options.prediction = training.prediction;
  options.predicts = nn::predicts(schedule);
  options.splits_backward = nn::splits_backward(schedule);
  options.replicas = nn::replicas_of_stages(schedule);
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  toy->run = std::make_unique<nn::TrainingRun>(
      layers_by_replica(toy->schedule, toy_partition(stages),
                        [&] { return toy_model(training.seed, training.dtype); }),
      toy->samples, std::move(options));
  return toy;
}

ir::Status run_segment(ToyRun& toy,
                       const ToyTraining& training,
                       std::uint32_t epoch,
                       const executor::HandlerTable& handlers,
                       On on) {
  toy.run->begin_segment(toy.schedule, toy_segment(training, epoch));
  const nn::IntraOpThreads one(1);
  if (on == On::Inline) {
    executor::InlineBackend backend;
    return executor::run(toy.schedule, handlers, backend).status();
  }
  const auto pool = executor::CpuPool::create(
      {.devices = toy.schedule.devices,
       .on_thread_start = [](ir::DeviceId) { nn::set_intra_op_threads(1); },
       .pin_to = {}});
  REQUIRE(pool.ok());
  executor::CpuBackend backend(*pool.value());
  return executor::run(toy.schedule, handlers, backend).status();
}

void run_all(ToyRun& toy, const ToyTraining& training, On on) {
  for (std::uint32_t epoch = 0; epoch < training.segments; ++epoch) {
    const ir::Status status = run_segment(toy, training, epoch, toy.run->handlers(), on);
    REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  }
}

std::vector<torch::Tensor> weights_of(nn::TrainingRun& run) {
  std::vector<torch::Tensor> weights;
  for (const nn::Stage* stage : run.first_replicas()) {
    for (const torch::Tensor& weight : stage->weights()) {
      weights.push_back(weight.clone());
    }
  }
  return weights;
}

std::vector<torch::Tensor> trained(const ir::Schedule& schedule,
                                   const ToyTraining& training,
                                   On on) {
  const auto toy = toy_run(schedule, training);
  run_all(*toy, training, on);
  return weights_of(*toy->run);
}

bool same_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::ranges::equal(
      a, b, [](const torch::Tensor& x, const torch::Tensor& y) { return torch::equal(x, y); });
}

double largest_difference(const std::vector<torch::Tensor>& a,
                          const std::vector<torch::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

}  // namespace xpipe::tests
