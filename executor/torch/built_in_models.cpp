// The built-in models:
//
//   mlp      flatten; depth x (linear hidden, ReLU); linear classes. Flatten belongs to the first.
//   lenet5   LeCun et al. 1998 with ReLU and max pooling: conv 6 5x5 (28x28: padded by 2), pool,
//            conv 16 5x5, pool, flatten, 120, 84, classes
//   vgg16    configuration D for small images, without batch norm and dropout (the workload W1 of
//            bench/): 13 convolutions 3x3 with ReLU and 5 poolings, 21 layers with the three
//            linear ones (512, 512, classes). Pooling rounds sizes up, so that 28x28 fits, too.
//
// Weights before a ReLU: normal, variance 2 / fan-in (He et al. 2015), bias zero. The last layer,
// and vgg16's linear ones: uniform within 1 / sqrt(fan-in), PyTorch's default.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "executor/torch/model.h"
#include "executor/torch/model_names.h"
#include "scheduler/policy.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using Options = std::map<std::string, std::string>;

enum class Init : std::uint8_t { He, Default };

class ModelBuilder {
 public:
  ModelBuilder(std::string name, const SampleShape& input, std::uint64_t seed)
      : shape_(input), seed_(seed) {
    model_.name = std::move(name);
  }

  void conv_relu(std::int64_t channels, std::int64_t kernel, std::int64_t padding) {
    torch::nn::Conv2d conv(
        torch::nn::Conv2dOptions(shape_.channels, channels, kernel).padding(padding));
    const std::int64_t fan_in = shape_.channels * kernel * kernel;
    initialize(conv->weight, conv->bias, fan_in, Init::He);
    shape_ = {channels, shape_.height + 2 * padding - kernel + 1,
              shape_.width + 2 * padding - kernel + 1};
    add("conv" + std::to_string(++convolutions_), torch::nn::Sequential(conv, torch::nn::ReLU()),
        size() * fan_in);
  }

  void pool() {
    shape_ = {shape_.channels, (shape_.height + 1) / 2, (shape_.width + 1) / 2};
    add("pool" + std::to_string(++poolings_),
        torch::nn::Sequential(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).ceil_mode(true))),
        size() * 4);
  }

  void flatten() {
    flatten_shape();
    add("flatten", torch::nn::Sequential(torch::nn::Flatten()), 0);
  }

  /// Flattens first where the input is an image.
  void linear(std::int64_t features, bool relu, Init init) {
    torch::nn::Sequential module;
    if (!flat_) {
      module->push_back(torch::nn::Flatten());
      flatten_shape();
    }
    const std::int64_t fan_in = size();
    torch::nn::Linear linear(fan_in, features);
    initialize(linear->weight, linear->bias, fan_in, init);
    module->push_back(linear);
    if (relu) {
      module->push_back(torch::nn::ReLU());
    }
    shape_ = {features, 1, 1};
    add("fc" + std::to_string(++linears_), std::move(module), fan_in * features);
  }

  [[nodiscard]] std::int64_t size() const { return shape_.channels * shape_.height * shape_.width; }

  [[nodiscard]] Model take() && { return std::move(model_); }

 private:
  void flatten_shape() {
    shape_ = {size(), 1, 1};
    flat_ = true;
  }

  void add(std::string name, torch::nn::Sequential module, std::int64_t macs) {
    model_.layers.push_back({.name = std::move(name),
                             .module = std::move(module),
                             .macs = static_cast<std::uint64_t>(macs),
                             .output_size = size()});
  }

  void initialize(torch::Tensor& weight,
                  torch::Tensor& bias,
                  std::int64_t fan_in,
                  Init init) const {
    const torch::NoGradGuard no_grad;
    at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(layer_seed(seed_, model_.layers.size()));
    if (init == Init::He) {
      weight.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_in)), generator);
      bias.zero_();
    } else {
      const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
      weight.uniform_(-bound, bound, generator);
      bias.uniform_(-bound, bound, generator);
    }
  }

  Model model_;
  SampleShape shape_;
  std::uint64_t seed_;
  bool flat_ = false;
  int convolutions_ = 0;
  int poolings_ = 0;
  int linears_ = 0;
};

Model mlp(const SampleShape& input,
          std::int64_t classes,
          std::uint64_t seed,
          std::int64_t hidden,
          std::int64_t depth) {
  ModelBuilder builder("mlp", input, seed);
  for (std::int64_t i = 0; i < depth; ++i) {
    builder.linear(hidden, true, Init::He);
  }
  builder.linear(classes, false, Init::Default);
  return std::move(builder).take();
}

Model lenet5(const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
  ModelBuilder builder("lenet5", input, seed);
  builder.conv_relu(6, 5, input.height < 32 ? 2 : 0);
  builder.pool();
  builder.conv_relu(16, 5, 0);
  builder.pool();
  builder.flatten();
  builder.linear(120, true, Init::He);
  builder.linear(84, true, Init::He);
  builder.linear(classes, false, Init::Default);
  return std::move(builder).take();
}

Model vgg16(const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
  ModelBuilder builder("vgg16", input, seed);
  constexpr std::int64_t kPool = 0;
  for (const std::int64_t channels : {64L, 64L, kPool, 128L, 128L, kPool, 256L, 256L, 256L, kPool,
                                      512L, 512L, 512L, kPool, 512L, 512L, 512L, kPool}) {
    if (channels == kPool) {
      builder.pool();
    } else {
      builder.conv_relu(channels, 3, 1);
    }
  }
  builder.linear(512, true, Init::Default);
  builder.linear(512, true, Init::Default);
  builder.linear(classes, false, Init::Default);
  return std::move(builder).take();
}

struct SizeOption {
  std::string_view name;
  std::int64_t value;  ///< the default
  std::int64_t most;
};

std::vector<SizeOption> sizes_of(std::string_view model) {
  if (model == "mlp") {
    return {{"hidden", 128, 65536}, {"depth", 7, 1024}};
  }
  return {};
}

/// Reads `sizes` from `options`, and complains about every other option.
ir::Status read_sizes(const std::string& model,
                      const Options& options,
                      std::vector<SizeOption>& sizes) {
  ir::Error error{ErrorKind::Usage, {}};
  std::string legal;
  for (const SizeOption& size : sizes) {
    legal += (legal.empty() ? "" : ", ") + std::string(size.name);
  }
  for (const auto& [name, text] : options) {
    const auto size = std::ranges::find(sizes, name, &SizeOption::name);
    if (size == sizes.end()) {
      error.diagnostics.push_back({"unknown-option", name,
                                   "model " + model + " has no option '" + name + "'; " +
                                       (legal.empty() ? "it has none" : "it has: " + legal)});
      continue;
    }
    std::int64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size() || value < 1 ||
        value > size->most) {
      error.diagnostics.push_back({"bad-option", name,
                                   "'" + text + "' is no size; want a whole number from 1 to " +
                                       std::to_string(size->most)});
      continue;
    }
    size->value = value;
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

/// Images that are small enough, or large enough, for what vgg16 and lenet5 are.
ir::Status check_image(const std::string& model, const SampleShape& input) {
  const bool fits = input.height == input.width && (input.height == 28 || input.height == 32);
  if (fits) {
    return {};
  }
  return ir::make_error(ErrorKind::Usage, "bad-input-shape", "--model",
                        model + " takes images of 28x28 or 32x32, these have " +
                            std::to_string(input.height) + "x" + std::to_string(input.width));
}

}  // namespace

std::vector<std::string> model_names() {
  return {"mlp", "lenet5", "vgg16"};
}

std::vector<std::string> model_option_names(std::string_view model) {
  std::vector<std::string> names;
  for (const SizeOption& size : sizes_of(model)) {
    names.emplace_back(size.name);
  }
  return names;
}

ir::Result<Model> build_model(const std::string& name,
                              const Options& options,
                              const SampleShape& input,
                              std::int64_t classes,
                              std::uint64_t seed) {
  const std::vector<std::string> names = model_names();
  if (std::ranges::find(names, name) == names.end()) {
    const std::optional<std::string> nearest = scheduler::nearest_name(name, names);
    return ir::make_error(ErrorKind::Usage, "unknown-model", "--model",
                          "no model '" + name + "'; there are: mlp, lenet5, vgg16" +
                              (nearest ? " (did you mean " + *nearest + "?)" : ""));
  }
  std::vector<SizeOption> sizes = sizes_of(name);
  if (ir::Status status = read_sizes(name, options, sizes); !status.ok()) {
    return status.error();
  }
  if (name == "mlp") {
    return mlp(input, classes, seed, sizes[0].value, sizes[1].value);
  }
  if (ir::Status status = check_image(name, input); !status.ok()) {
    return status.error();
  }
  return name == "lenet5" ? lenet5(input, classes, seed) : vgg16(input, classes, seed);
}

}  // namespace xpipe::executor::nn
