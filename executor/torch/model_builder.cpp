#include "executor/torch/model_builder.h"

#include <cmath>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "executor/torch/dropout.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

namespace {

/// relu(main(x) + shortcut(x)); without a shortcut x itself is added.
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(torch::nn::Sequential main, torch::nn::Sequential shortcut)
      : main_(register_module("main", std::move(main))) {
    if (!shortcut->is_empty()) {
      shortcut_ = register_module("shortcut", std::move(shortcut));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor added = shortcut_.is_empty() ? input : shortcut_->forward(input);
    return torch::relu(main_->forward(input) + added);
  }

 private:
  torch::nn::Sequential main_;
  torch::nn::Sequential shortcut_{nullptr};
};

TORCH_MODULE(Residual);

/// The branches' outputs, joined by channel.
class ConcatImpl : public torch::nn::Module {
 public:
  explicit ConcatImpl(const std::vector<torch::nn::Sequential>& branches) {
    for (const torch::nn::Sequential& branch : branches) {
      branches_.push_back(register_module("branch" + std::to_string(branches_.size()), branch));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    std::vector<torch::Tensor> outputs;
    outputs.reserve(branches_.size());
    for (torch::nn::Sequential& branch : branches_) {
      outputs.push_back(branch->forward(input));
    }
    return torch::cat(outputs, 1);
  }

 private:
  std::vector<torch::nn::Sequential> branches_;
};

TORCH_MODULE(Concat);

/// The size of a window operation's output.
std::int64_t windows(std::int64_t size,
                     std::int64_t kernel,
                     std::int64_t stride,
                     std::int64_t padding,
                     bool round_up = false) {
  const std::int64_t room = size + 2 * padding - kernel + (round_up ? stride - 1 : 0);
  XPIPE_CHECK(room >= 0) << "a window of " << kernel << " on " << size << " + 2 x " << padding;
  return room / stride + 1;
}

}  // namespace

ConvSpec square(std::int64_t channels,
                std::int64_t kernel,
                std::int64_t stride,
                std::int64_t padding) {
  return {channels, kernel, kernel, stride, padding, padding};
}

Chain::Chain(const SampleShape& input, bool is_flat, at::Generator generator)
    : shape_(input), generator_(std::move(generator)), flat_(is_flat) {}

void Chain::initialize(torch::Tensor& weight,
                       torch::Tensor* bias,
                       std::int64_t fan_in,
                       std::int64_t fan_out,
                       Init init) {
  const torch::NoGradGuard no_grad;
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  switch (init) {
    case Init::FanInNormal:
      weight.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_in)), generator_);
      break;
    case Init::FanOutNormal:
      weight.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_out)), generator_);
      break;
    case Init::FanInUniform:
      weight.uniform_(-bound, bound, generator_);
      break;
    case Init::Normal01:
      weight.normal_(0.0, 0.1, generator_);
      break;
    case Init::Normal001:
      weight.normal_(0.0, 0.01, generator_);
      break;
  }
  if (bias == nullptr) {
    return;
  }
  if (init == Init::FanInUniform) {
    bias->uniform_(-bound, bound, generator_);
  } else {
    bias->zero_();
  }
}

torch::nn::Conv2d Chain::conv(const ConvSpec& spec, bool bias, Init init) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(shape_.channels, spec.channels,
                                                  {spec.kernel_height, spec.kernel_width})
                             .stride(spec.stride)
                             .padding({spec.padding_height, spec.padding_width})
                             .bias(bias));
  const std::int64_t area = spec.kernel_height * spec.kernel_width;
  const std::int64_t fan_in = shape_.channels * area;
  initialize(conv->weight, bias ? &conv->bias : nullptr, fan_in, spec.channels * area, init);
  shape_ = {spec.channels,
            windows(shape_.height, spec.kernel_height, spec.stride, spec.padding_height),
            windows(shape_.width, spec.kernel_width, spec.stride, spec.padding_width)};
  macs_ += size() * fan_in;
  return conv;
}

void Chain::conv_relu(const ConvSpec& spec, Init init) {
  module_->push_back(conv(spec, true, init));
  relu();
}

void Chain::conv_batch_norm(const ConvSpec& spec, Init init, double eps, bool with_relu) {
  module_->push_back(conv(spec, false, init));
  module_->push_back(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(spec.channels).eps(eps)));
  macs_ += size();
  if (with_relu) {
    relu();
  }
}

void Chain::max_pool(std::int64_t kernel,
                     std::int64_t stride,
                     std::int64_t padding,
                     bool round_up) {
  module_->push_back(torch::nn::MaxPool2d(
      torch::nn::MaxPool2dOptions(kernel).stride(stride).padding(padding).ceil_mode(round_up)));
  shape_.height = windows(shape_.height, kernel, stride, padding, round_up);
  shape_.width = windows(shape_.width, kernel, stride, padding, round_up);
  macs_ += size() * kernel * kernel;
}

void Chain::average_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  module_->push_back(
      torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(kernel).stride(stride).padding(padding)));
  shape_.height = windows(shape_.height, kernel, stride, padding);
  shape_.width = windows(shape_.width, kernel, stride, padding);
  macs_ += size() * kernel * kernel;
}

void Chain::average_pool_to(std::int64_t side) {
  macs_ += size();
  module_->push_back(
      torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions({side, side})));
  shape_.height = side;
  shape_.width = side;
}

void Chain::upsample(std::int64_t factor) {
  const auto scale = static_cast<double>(factor);
  module_->push_back(torch::nn::Upsample(torch::nn::UpsampleOptions()
                                             .scale_factor(std::vector<double>{scale, scale})
                                             .mode(torch::kNearest)));
  shape_.height *= factor;
  shape_.width *= factor;
  macs_ += size();
}

void Chain::flatten() {
  module_->push_back(torch::nn::Flatten());
  shape_ = {size(), 1, 1};
  flat_ = true;
}

void Chain::linear(std::int64_t features, Init init) {
  if (!flat_) {
    flatten();
  }
  const std::int64_t fan_in = size();
  torch::nn::Linear linear(fan_in, features);
  initialize(linear->weight, &linear->bias, fan_in, features, init);
  module_->push_back(linear);
  shape_ = {features, 1, 1};
  flat_ = true;
  macs_ += fan_in * features;
}

void Chain::relu() {
  module_->push_back(torch::nn::ReLU());
}

void Chain::dropout(double probability, std::uint64_t layer) {
  module_->push_back(KeyedDropout(probability, layer));
}

void Chain::residual(const Chain& main, const Chain& shortcut) {
  XPIPE_CHECK(main.size() == shortcut.size() && main.shape_.height == shortcut.shape_.height)
      << "a block of " << main.size() << " and a shortcut of " << shortcut.size() << " numbers";
  module_->push_back(Residual(main.module_, shortcut.module_));
  shape_ = main.shape_;
  macs_ += main.macs_ + shortcut.macs_ + size();
}

void Chain::concat(const std::vector<Chain>& branches) {
  std::vector<torch::nn::Sequential> modules;
  SampleShape joined{0, branches.front().shape_.height, branches.front().shape_.width};
  for (const Chain& branch : branches) {
    XPIPE_CHECK(branch.shape_.height == joined.height && branch.shape_.width == joined.width)
        << "branches of " << joined.height << " and " << branch.shape_.height << " rows";
    joined.channels += branch.shape_.channels;
    macs_ += branch.macs_;
    modules.push_back(branch.module_);
  }
  module_->push_back(Concat(modules));
  shape_ = joined;
}

ModelBuilder::ModelBuilder(std::string name, const SampleShape& input, std::uint64_t seed)
    : shape_(input), seed_(seed) {
  model_.name = std::move(name);
}

Chain ModelBuilder::next() const {
  return {shape_, flat_, at::make_generator<at::CPUGeneratorImpl>(layer_seed(seed_, index()))};
}

void ModelBuilder::add(std::string name, const Chain& chain) {
  model_.layers.push_back({.name = std::move(name),
                           .module = chain.module(),
                           .macs = static_cast<std::uint64_t>(chain.macs()),
                           .output_size = chain.size()});
  shape_ = chain.shape();
  shapes_.push_back(shape_);
  flat_ = chain.is_flat();
}

void ModelBuilder::skip(std::size_t from, Join join) {
  const SampleShape& other = shapes_.at(from);
  XPIPE_CHECK(from + 1 < index() && other.height == shape_.height && other.width == shape_.width &&
              (join == Join::Concatenate || other.channels == shape_.channels))
      << "layer " << from << " leaves " << other.height << " rows for layer " << index() << " of "
      << shape_.height;
  model_.skips.push_back({from, index(), join});
  if (join == Join::Concatenate) {
    shape_.channels += other.channels;
  }
}

}  // namespace xpipe::executor::nn
