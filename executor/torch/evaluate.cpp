#include "executor/torch/evaluate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

#include "executor/torch/intra_op_threads.h"

namespace xpipe::executor::nn {

ir::Result<Evaluation> evaluate(const std::vector<Stage*>& stages, const SampleSource& samples) {
  constexpr std::uint32_t kBatch = 250;
  const std::uint32_t count = samples.count();
  Evaluation sums;
  std::int64_t predictions = 0;
  try {
    const torch::NoGradGuard no_grad;
    for (std::uint32_t begin = 0; begin < count; begin += kBatch) {
      std::vector<std::uint32_t> numbers(std::min(kBatch, count - begin));
      std::iota(numbers.begin(), numbers.end(), begin);
      ir::Result<torch::Tensor> input = samples.input_batch(0, numbers);
      if (!input.ok()) {
        return input.error();
      }
      torch::Tensor output = std::move(input.value());
      for (Stage* stage : stages) {
        output = stage->evaluate(output);
      }
      output = output.is_cpu() && output.scalar_type() != torch::kBFloat16
                   ? output
                   : output.to(torch::kCPU, torch::kFloat32);
      const torch::Tensor labels = samples.label_batch(numbers).flatten();
      output = output.reshape({labels.size(0), -1});
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          output, labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      sums.loss += loss.item<double>();
      sums.accuracy += static_cast<double>(output.argmax(1).eq(labels).sum().item<std::int64_t>());
      predictions += labels.size(0);
    }
  } catch (const c10::Error& error) {
    return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "evaluation",
                          error.what_without_backtrace());
  }
  return Evaluation{sums.loss / static_cast<double>(predictions),
                    sums.accuracy / static_cast<double>(predictions)};
}

std::uint64_t weights_hash(const std::vector<Stage*>& stages) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Stage* stage : stages) {
    for (const torch::Tensor& on_device : stage->weights()) {
      const torch::Tensor weight = on_device.cpu();
      const auto* bytes = static_cast<const unsigned char*>(weight.data_ptr());
      for (std::size_t i = 0; i < weight.nbytes(); ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
      }
    }
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
