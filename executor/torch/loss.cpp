#include "executor/torch/loss.h"

namespace xpipe::executor::nn {

namespace {

torch::Tensor in_wide_type(const torch::Tensor& output) {
  return output.scalar_type() == torch::kBFloat16 ? output.to(torch::kFloat32) : output;
}

torch::Tensor mean_square(const torch::Tensor& output, const torch::Tensor& labels) {
  const torch::Tensor target =
      labels.is_floating_point()
          ? labels.to(output.scalar_type()).reshape(output.sizes())
          : torch::one_hot(labels, output.size(-1)).to(output.scalar_type()).view(output.sizes());
  return torch::nn::functional::mse_loss(output, target);
}

}  // namespace

torch::Tensor mean_loss(LossKind kind, const torch::Tensor& output, const torch::Tensor& labels) {
  const torch::Tensor wide = in_wide_type(output);
  if (kind == LossKind::MeanSquare) {
    return mean_square(wide, labels);
  }
  return torch::nn::functional::cross_entropy(wide.reshape({labels.numel(), -1}), labels.flatten());
}

torch::Tensor correct_predictions(const torch::Tensor& output, const torch::Tensor& labels) {
  return labels.is_floating_point() ? torch::zeros({}, labels.options().dtype(torch::kInt64))
                                    : output.argmax(-1).eq(labels).sum();
}

}  // namespace xpipe::executor::nn
