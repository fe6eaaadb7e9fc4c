// mlp, lenet5, vgg16: chains of convolutions and linear layers.
//
// Weights before a ReLU: normal, variance 2 / fan-in, bias zero. The last layer, and the linear
// ones of vgg16 for small images: PyTorch's default. vgg16 for large images: torchvision's.
#include <string>
#include <utility>

#include "executor/torch/built_in_models.h"
#include "executor/torch/model_builder.h"

namespace xpipe::executor::nn {

namespace {

constexpr std::int64_t kVggSmallImage = 32;

/// A builder that numbers its layers by kind: conv1, pool1, fc1, ...
class NumberedBuilder {
 public:
  NumberedBuilder(std::string name, const SampleShape& input, std::uint64_t seed)
      : builder_(std::move(name), input, seed) {}

  void conv_relu(std::int64_t channels, std::int64_t kernel, std::int64_t padding, Init init) {
    Chain chain = builder_.next();
    chain.conv_relu(square(channels, kernel, 1, padding), init);
    builder_.add("conv" + std::to_string(++convolutions_), chain);
  }

  void pool(bool round_up) {
    Chain chain = builder_.next();
    chain.max_pool(2, 2, 0, round_up);
    builder_.add("pool" + std::to_string(++poolings_), chain);
  }

  void flatten() {
    Chain chain = builder_.next();
    chain.flatten();
    builder_.add("flatten", chain);
  }

  void average_pool_to(std::int64_t side) {
    Chain chain = builder_.next();
    chain.average_pool_to(side);
    builder_.add("avgpool", chain);
  }

  void linear(std::int64_t features, bool relu, Init init, double dropout = 0.0) {
    Chain chain = builder_.next();
    chain.linear(features, init);
    if (relu) {
      chain.relu();
    }
    if (dropout > 0.0) {
      chain.dropout(dropout, builder_.index());
    }
    builder_.add("fc" + std::to_string(++linears_), chain);
  }

  [[nodiscard]] Model take() && { return std::move(builder_).take(); }

 private:
  ModelBuilder builder_;
  int convolutions_ = 0;
  int poolings_ = 0;
  int linears_ = 0;
};

}  // namespace

Model mlp(const SampleShape& input,
          std::int64_t classes,
          std::uint64_t seed,
          std::int64_t hidden,
          std::int64_t depth) {
  NumberedBuilder builder("mlp", input, seed);
  for (std::int64_t i = 0; i < depth; ++i) {
    builder.linear(hidden, true, Init::FanInNormal);
  }
  builder.linear(classes, false, Init::FanInUniform);
  return std::move(builder).take();
}

Model lenet5(const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
  NumberedBuilder builder("lenet5", input, seed);
  builder.conv_relu(6, 5, input.height < 32 ? 2 : 0, Init::FanInNormal);
  builder.pool(true);
  builder.conv_relu(16, 5, 0, Init::FanInNormal);
  builder.pool(true);
  builder.flatten();
  builder.linear(120, true, Init::FanInNormal);
  builder.linear(84, true, Init::FanInNormal);
  builder.linear(classes, false, Init::FanInUniform);
  return std::move(builder).take();
}

Model vgg16(const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
  const bool is_small = input.height <= kVggSmallImage;
  NumberedBuilder builder("vgg16", input, seed);
  constexpr std::int64_t kPool = 0;
  for (const std::int64_t channels : {64L, 64L, kPool, 128L, 128L, kPool, 256L, 256L, 256L, kPool,
                                      512L, 512L, 512L, kPool, 512L, 512L, 512L, kPool}) {
    if (channels == kPool) {
      builder.pool(is_small);
    } else {
      builder.conv_relu(channels, 3, 1, is_small ? Init::FanInNormal : Init::FanOutNormal);
    }
  }
  if (is_small) {
    builder.linear(512, true, Init::FanInUniform);
    builder.linear(512, true, Init::FanInUniform);
    builder.linear(classes, false, Init::FanInUniform);
  } else {
    constexpr std::int64_t kPooledSide = 7;
    constexpr double kDropout = 0.5;
    builder.average_pool_to(kPooledSide);
    builder.linear(4096, true, Init::Normal001, kDropout);
    builder.linear(4096, true, Init::Normal001, kDropout);
    builder.linear(classes, false, Init::Normal001);
  }
  return std::move(builder).take();
}

}  // namespace xpipe::executor::nn
