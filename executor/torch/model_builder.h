// Puts models together layer by layer, keeping count of shapes and multiply-adds, and draws every
// layer's first weights from that layer's own generator: a cut changes none of them.
//
//   Chain     operations one after the other: conv (+ batch norm, ReLU), pooling
//   Residual  relu(main(x) + shortcut(x))                     He et al. 2016, figure 2
//   Concat    the outputs of its branches, joined by channel  Szegedy et al. 2016
//
// A branching block is one layer of the model: only one tensor crosses a cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"

namespace xpipe::executor::nn {

/// How weights begin; biases are zero but with FanInUniform.
enum class Init : std::uint8_t {
  FanInNormal,   ///< normal, variance 2 / fan-in (He et al. 2015)
  FanOutNormal,  ///< normal, variance 2 / fan-out: torchvision's convolutions
  FanInUniform,  ///< within 1 / sqrt(fan-in), weight and bias: PyTorch's default
  Normal01,      ///< normal, deviation 0.1: torchvision's Inception
  Normal001,     ///< normal, deviation 0.01: torchvision's VGG, linear
};

struct ConvSpec {
  std::int64_t channels = 0;
  std::int64_t kernel_height = 1;
  std::int64_t kernel_width = 1;
  std::int64_t stride = 1;
  std::int64_t padding_height = 0;
  std::int64_t padding_width = 0;
};

/// A square kernel.
[[nodiscard]] ConvSpec square(std::int64_t channels,
                              std::int64_t kernel,
                              std::int64_t stride = 1,
                              std::int64_t padding = 0);

class Chain {
 public:
  /// Takes tensors of `input`, [samples, channels, height, width] or, flat, [samples, channels];
  /// draws weights from `generator`.
  Chain(const SampleShape& input, bool is_flat, at::Generator generator);

  void conv_relu(const ConvSpec& spec, Init init);
  /// Without bias.
  void conv_batch_norm(const ConvSpec& spec, Init init, double eps, bool relu);
  void max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool round_up);
  void average_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding);
  /// Average over windows that leave `side` x `side`.
  void average_pool_to(std::int64_t side);
  /// Nearest neighbour.
  void upsample(std::int64_t factor);
  void flatten();
  /// Flattens first where the input is an image.
  void linear(std::int64_t features, Init init);
  void relu();
  /// Mask by (seed, step, layer, micro-batch): executor/torch/dropout.h.
  void dropout(double probability, std::uint64_t layer);

  /// relu(main + shortcut); both began as copies of this chain's shape. An empty shortcut is the
  /// identity. Requires: equal output shapes.
  void residual(const Chain& main, const Chain& shortcut);
  void concat(const std::vector<Chain>& branches);

  /// A chain that begins where this one ends.
  [[nodiscard]] Chain branch() const { return {shape_, flat_, generator_}; }

  [[nodiscard]] const SampleShape& shape() const { return shape_; }

  [[nodiscard]] std::int64_t size() const { return shape_.channels * shape_.height * shape_.width; }

  [[nodiscard]] std::int64_t macs() const { return macs_; }

  [[nodiscard]] bool is_flat() const { return flat_; }

  [[nodiscard]] const torch::nn::Sequential& module() const { return module_; }

 private:
  void initialize(torch::Tensor& weight,
                  torch::Tensor* bias,
                  std::int64_t fan_in,
                  std::int64_t fan_out,
                  Init init);
  torch::nn::Conv2d conv(const ConvSpec& spec, bool bias, Init init);

  SampleShape shape_;
  at::Generator generator_;
  torch::nn::Sequential module_;
  std::int64_t macs_ = 0;
  bool flat_;
};

class ModelBuilder {
 public:
  ModelBuilder(std::string name, const SampleShape& input, std::uint64_t seed);

  /// An empty chain for the next layer, from the shape that the last one leaves.
  [[nodiscard]] Chain next() const;

  /// The index of the next layer.
  [[nodiscard]] std::uint64_t index() const { return model_.layers.size(); }

  void add(std::string name, const Chain& chain);

  /// The next layer reads the output of layer `from`, too: its next() begins with the joined shape.
  /// Requires: a layer in between; as high and wide as what it is joined to, to be added as deep.
  void skip(std::size_t from, Join join);

  [[nodiscard]] Model take() && { return std::move(model_); }

 private:
  Model model_;
  SampleShape shape_;
  std::vector<SampleShape> shapes_;  ///< by layer: what it leaves
  bool flat_ = false;
  std::uint64_t seed_;
};

}  // namespace xpipe::executor::nn
