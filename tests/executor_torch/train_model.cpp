#include "tests/executor_torch/train_model.h"

#include <memory>
#include <numeric>
#include <utility>

#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "executor/torch/dropout.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/weight_hooks.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {

namespace {

nn::Segment segment_of(const ModelTraining& training, std::uint32_t epoch) {
  nn::Segment segment;
  segment.epoch = epoch;
  segment.first_of_run = epoch * training.mini_batches.size();
  std::uint32_t begin = 0;
  for (const std::uint32_t count : training.mini_batches) {
    segment.mini_batches.push_back({begin, count});
    begin += count;
  }
  segment.order.resize(begin);
  std::iota(segment.order.begin(), segment.order.end(), 0U);
  return segment;
}

ir::Status train(const nn::Model& model,
                 const nn::SampleSource& samples,
                 const ModelTraining& training,
                 TrainedModel& trained) {
  const nn::IntraOpThreads one(1);
  const ir::Schedule schedule =
      compiled(training.policy, static_cast<std::uint32_t>(training.partition.size()),
               training.micro_batches, static_cast<std::uint32_t>(training.mini_batches.size()));
  nn::RunOptions options;
  options.optimizer = training.optimizer;
  options.seed = training.seed;
  options.predicts = nn::predicts(schedule);
  nn::TrainingRun run(nn::cut(model, training.partition), samples, std::move(options));
  for (std::uint32_t epoch = 0; epoch < training.epochs; ++epoch) {
    run.begin_segment(schedule, segment_of(training, epoch));
    executor::InlineBackend backend;
    if (ir::Status status = executor::run(schedule, run.handlers(), backend).status();
        !status.ok()) {
      return status;
    }
    for (const nn::MiniBatchRecord& record : run.take_records()) {
      trained.losses.push_back(record.loss);
      trained.accuracies.push_back(record.accuracy);
    }
  }
  trained.weights = weights_of(run);
  return {};
}

std::vector<torch::Tensor> take_gradients(const nn::Model& model) {
  std::vector<torch::Tensor> gradients;
  for (torch::Tensor& leaf : nn::parameters_of(model.layers)) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : torch::zeros_like(leaf));
    leaf.mutable_grad().reset();
  }
  return gradients;
}

}  // namespace

TrainedModel train_model(const nn::Model& model,
                         const nn::SampleSource& samples,
                         const ModelTraining& training) {
  TrainedModel trained;
  const ir::Status status = train(model, samples, training, trained);
  REQUIRE_MESSAGE(status.ok(), status.error().to_string());
  return trained;
}

ir::Status try_training(const nn::Model& model,
                        const nn::SampleSource& samples,
                        const ModelTraining& training) {
  TrainedModel trained;
  return train(model, samples, training, trained);
}

torch::Tensor forward_through(const nn::Model& model, const torch::Tensor& input) {
  const nn::PassScope pass({});
  torch::Tensor x = input;
  for (const nn::Layer& layer : model.layers) {
    torch::nn::Sequential module = layer.module;
    x = module->forward(x);
  }
  return x;
}

std::vector<torch::Tensor> gradients_in_place(const nn::Model& model,
                                              const torch::Tensor& input,
                                              const std::vector<torch::Tensor>& for_backward) {
  const torch::Tensor loss = forward_through(model, input).square().sum();
  std::vector<torch::Tensor> leaves = nn::parameters_of(model.layers);
  std::vector<torch::Tensor> before;
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    before.push_back(leaves[p].detach().clone());
    leaves[p].data().copy_(for_backward[p]);
  }
  loss.backward();
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    leaves[p].data().copy_(before[p]);
  }
  return take_gradients(model);
}

std::vector<torch::Tensor> gradients_by_hooks(const nn::Model& model,
                                              const torch::Tensor& input,
                                              const std::vector<torch::Tensor>& for_backward) {
  constexpr ir::SlotId kOther{1};
  const auto slots = std::make_shared<nn::WeightSlots>(nn::parameters_of(model.layers));
  slots->reserve(2);
  for (std::size_t p = 0; p < for_backward.size(); ++p) {
    torch::Tensor(slots->slot(kOther)[p]).copy_(for_backward[p]);
  }
  torch::Tensor loss;
  {
    const nn::ForwardScope scope(slots);
    loss = forward_through(model, input).square().sum();
  }
  {
    const nn::BackwardScope scope(*slots, kOther);
    loss.backward();
  }
  return take_gradients(model);
}

}  // namespace xpipe::tests
