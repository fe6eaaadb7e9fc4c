// The built-in models by name: their options, the inputs they take, and who builds them.
#include "executor/torch/built_in_models.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "executor/torch/model_names.h"
#include "scheduler/policy.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using Options = std::map<std::string, std::string>;

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

using Builder = Model (*)(const SampleShape& input,
                          std::int64_t classes,
                          std::uint64_t seed,
                          const std::vector<SizeOption>& sizes);

/// Square images of one of `sides`, or of `at_least` and more; 0: no others.
struct InputRule {
  std::vector<std::int64_t> sides;
  std::int64_t at_least = 0;
};

struct BuiltIn {
  std::string_view name;
  Builder build;
  std::optional<InputRule> input;  ///< absent: takes any
};

Model build_resnet50(const SampleShape& input,
                     std::int64_t classes,
                     std::uint64_t seed,
                     const std::vector<SizeOption>& /*sizes*/) {
  return resnet("resnet50", {3, 4, 6, 3}, input, classes, seed);
}

Model build_resnet101(const SampleShape& input,
                      std::int64_t classes,
                      std::uint64_t seed,
                      const std::vector<SizeOption>& /*sizes*/) {
  return resnet("resnet101", {3, 4, 23, 3}, input, classes, seed);
}

/// A builder of a model that has no sizes of its own.
template <Model (*kBuild)(const SampleShape&, std::int64_t, std::uint64_t)>
Model without_sizes(const SampleShape& input,
                    std::int64_t classes,
                    std::uint64_t seed,
                    const std::vector<SizeOption>& /*sizes*/) {
  return kBuild(input, classes, seed);
}

Model build_mlp(const SampleShape& input,
                std::int64_t classes,
                std::uint64_t seed,
                const std::vector<SizeOption>& sizes) {
  return mlp(input, classes, seed, sizes[0].value, sizes[1].value);
}

const std::vector<BuiltIn>& built_ins() {
  // Torchvision's smallest input of inception_v3 is 75; a window of vgg16's fifth pooling needs 32.
  static const std::vector<BuiltIn> models = {
      {"mlp", build_mlp, std::nullopt},
      {"lenet5", without_sizes<lenet5>, InputRule{{28, 32}, 0}},
      {"vgg16", without_sizes<vgg16>, InputRule{{28, 32}, 64}},
      {"resnet50", build_resnet50, InputRule{{28, 32}, 64}},
      {"resnet101", build_resnet101, InputRule{{28, 32}, 64}},
      {"inception_v3", without_sizes<inception_v3>, InputRule{{28, 32, 64}, 75}},
  };
  return models;
}

std::string sides_text(const InputRule& rule) {
  std::string text;
  for (const std::int64_t side : rule.sides) {
    text += (text.empty() ? "" : ", ") + std::to_string(side) + "x" + std::to_string(side);
  }
  if (rule.at_least > 0) {
    text += " or at least " + std::to_string(rule.at_least) + "x" + std::to_string(rule.at_least);
  }
  return text;
}

ir::Status check_image(const BuiltIn& model, const SampleShape& input) {
  if (!model.input) {
    return {};
  }
  const InputRule& rule = *model.input;
  const bool is_listed = std::ranges::find(rule.sides, input.height) != rule.sides.end();
  const bool is_large = rule.at_least > 0 && input.height >= rule.at_least;
  if (input.height == input.width && (is_listed || is_large)) {
    return {};
  }
  return ir::make_error(ErrorKind::Usage, "bad-input-shape", "--model",
                        std::string(model.name) + " takes square images of " + sides_text(rule) +
                            ", these have " + std::to_string(input.height) + "x" +
                            std::to_string(input.width));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const BuiltIn& model : built_ins()) {
    names.emplace_back(model.name);
  }
  return names;
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
  const auto model = std::ranges::find(built_ins(), name, &BuiltIn::name);
  if (model == built_ins().end()) {
    const std::vector<std::string> names = model_names();
    std::string list;
    for (const std::string& known : names) {
      list += (list.empty() ? "" : ", ") + known;
    }
    const std::optional<std::string> nearest = scheduler::nearest_name(name, names);
    return ir::make_error(ErrorKind::Usage, "unknown-model", "--model",
                          "no model '" + name + "'; there are: " + list +
                              (nearest ? " (did you mean " + *nearest + "?)" : ""));
  }
  std::vector<SizeOption> sizes = sizes_of(name);
  if (ir::Status status = read_sizes(name, options, sizes); !status.ok()) {
    return status.error();
  }
  if (ir::Status status = check_image(*model, input); !status.ok()) {
    return status.error();
  }
  return model->build(input, classes, seed, sizes);
}

}  // namespace xpipe::executor::nn
