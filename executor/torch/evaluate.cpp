#include "executor/torch/evaluate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

#include "executor/torch/intra_op_threads.h"

namespace xpipe::executor::nn {

void add_batch(EvaluationSums& sums,
               const torch::Tensor& on_device,
               const torch::Tensor& labels,
               LossKind loss) {
  const torch::Tensor output = on_device.cpu();
  const std::int64_t predictions = labels.is_floating_point() ? labels.size(0) : labels.numel();
  sums.loss += mean_loss(loss, output, labels).item<double>() * static_cast<double>(predictions);
  sums.correct += static_cast<double>(correct_predictions(output, labels).item<std::int64_t>());
  sums.predictions += predictions;
}

void evaluate_stage(Stage& stage, std::map<std::size_t, torch::Tensor>& made) {
  const StageWiring& wiring = stage.wiring();
  Tensors inputs;
  inputs.reserve(wiring.imports.size());
  for (const std::size_t producer : wiring.imports) {
    inputs.push_back(made.at(producer));
  }
  Tensors exports = stage.evaluate(inputs);
  for (std::size_t i = 0; i < exports.size(); ++i) {
    made.insert_or_assign(wiring.exports[i], std::move(exports[i]));
  }
}

Evaluation mean_of(const EvaluationSums& sums) {
  const auto predictions = static_cast<double>(sums.predictions);
  return {sums.loss / predictions, sums.correct / predictions};
}

std::vector<std::uint32_t> evaluation_batch(std::uint32_t begin, std::uint32_t count) {
  std::vector<std::uint32_t> numbers(std::min(kEvaluationBatch, count - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

ir::Result<Evaluation> evaluate(const std::vector<Stage*>& stages,
                                const SampleSource& samples,
                                LossKind loss) {
  const std::uint32_t count = samples.count();
  EvaluationSums sums;
  try {
    const torch::NoGradGuard no_grad;
    for (std::uint32_t begin = 0; begin < count; begin += kEvaluationBatch) {
      const std::vector<std::uint32_t> numbers = evaluation_batch(begin, count);
      ir::Result<torch::Tensor> input = samples.input_batch(0, numbers);
      if (!input.ok()) {
        return input.error();
      }
      std::map<std::size_t, torch::Tensor> made{{kModelInput, std::move(input.value())}};
      for (Stage* stage : stages) {
        evaluate_stage(*stage, made);
      }
      add_batch(sums, made.at(stages.back()->wiring().exports.back()), samples.label_batch(numbers),
                loss);
    }
  } catch (const c10::Error& error) {
    return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "evaluation",
                          error.what_without_backtrace());
  }
  return mean_of(sums);
}

std::uint64_t weights_hash(const Stage& stage, std::uint64_t so_far) {
  for (const torch::Tensor& on_device : stage.weights()) {
    const torch::Tensor weight = on_device.cpu();
    const auto* bytes = static_cast<const unsigned char*>(weight.data_ptr());
    for (std::size_t i = 0; i < weight.nbytes(); ++i) {
      so_far = (so_far ^ bytes[i]) * 0x100000001b3ULL;
    }
  }
  return so_far;
}

std::uint64_t weights_hash(const std::vector<Stage*>& stages) {
  std::uint64_t hash = kEmptyHash;
  for (const Stage* stage : stages) {
    hash = weights_hash(*stage, hash);
  }
  return hash;
}

void set_intra_op_threads(std::uint32_t count) {
  torch::set_num_threads(static_cast<int>(count));
}

IntraOpThreads::IntraOpThreads(std::uint32_t count)
    : before_(static_cast<std::uint32_t>(torch::get_num_threads())) {
  set_intra_op_threads(count);
}

IntraOpThreads::~IntraOpThreads() {
  set_intra_op_threads(before_);
}

}  // namespace xpipe::executor::nn
