// The built-in models by name: their options, the inputs they take, and who builds them.
#include "executor/torch/built_in_models.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "executor/torch/model_names.h"
#include "executor/torch/model_options.h"
#include "scheduler/policy.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using Options = std::map<std::string, std::string>;

using Builder = Model (*)(const SampleShape& input,
                          std::int64_t classes,
                          std::uint64_t seed,
                          const std::vector<ModelOption>& options);

/// Square images of one of `sides`, or of `at_least` and more; 0: no others.
struct InputRule {
  std::vector<std::int64_t> sides;
  std::int64_t at_least = 0;
};

struct BuiltIn {
  std::string_view name;
  Builder build;
  std::optional<InputRule> input;  ///< absent: takes any
  bool takes_text = false;
};

Model build_resnet50(const SampleShape& input,
                     std::int64_t classes,
                     std::uint64_t seed,
                     const std::vector<ModelOption>& /*options*/) {
  return resnet("resnet50", {3, 4, 6, 3}, input, classes, seed);
}

Model build_resnet101(const SampleShape& input,
                      std::int64_t classes,
                      std::uint64_t seed,
                      const std::vector<ModelOption>& /*options*/) {
  return resnet("resnet101", {3, 4, 23, 3}, input, classes, seed);
}

/// A builder of a model that has no sizes of its own.
template <Model (*kBuild)(const SampleShape&, std::int64_t, std::uint64_t)>
Model without_sizes(const SampleShape& input,
                    std::int64_t classes,
                    std::uint64_t seed,
                    const std::vector<ModelOption>& /*options*/) {
  return kBuild(input, classes, seed);
}

Model build_mlp(const SampleShape& input,
                std::int64_t classes,
                std::uint64_t seed,
                const std::vector<ModelOption>& options) {
  return mlp(input, classes, seed, options[0].whole(), options[1].whole());
}

Model build_unet(const SampleShape& input,
                 std::int64_t classes,
                 std::uint64_t seed,
                 const std::vector<ModelOption>& options) {
  return unet(input, classes, seed, options[0].whole(), options[1].whole());
}

Model build_gpt(const SampleShape& input,
                std::int64_t classes,
                std::uint64_t seed,
                const std::vector<ModelOption>& options) {
  const GptSizes sizes{.layers = options[0].whole(),
                       .width = options[1].whole(),
                       .heads = options[2].whole(),
                       .sequence = input.sequence,
                       .tie = options[4].flag(),
                       .dropout = options[5].value};
  return gpt(sizes, std::max(classes, options[6].whole()), seed);
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
      {"unet", build_unet, std::nullopt},
      {"gpt", build_gpt, std::nullopt, true},
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

/// Heads that do not divide the width, and text of another length.
ir::Status check_text(const SampleShape& input, const std::vector<ModelOption>& options) {
  const std::int64_t width = options[1].whole();
  const std::int64_t heads = options[2].whole();
  const std::int64_t sequence = options[3].whole();
  if (width % heads != 0) {
    return ir::make_error(ErrorKind::Usage, "bad-option", "heads",
                          std::to_string(heads) + " heads for a width of " + std::to_string(width) +
                              "; want a divisor of it");
  }
  if (input.sequence != sequence) {
    return ir::make_error(ErrorKind::Usage, "bad-input-shape", "sequence",
                          "samples of " + std::to_string(input.sequence) +
                              " tokens for a model of " + std::to_string(sequence));
  }
  return {};
}

/// Images that cannot be halved `depth` times.
ir::Status check_halves(const SampleShape& input, std::int64_t depth) {
  const std::int64_t whole = std::int64_t{1} << depth;
  if (input.height % whole == 0 && input.width % whole == 0) {
    return {};
  }
  return ir::make_error(ErrorKind::Usage, "bad-input-shape", "--model",
                        "unet of depth " + std::to_string(depth) +
                            " takes images whose sides are multiples of " + std::to_string(whole) +
                            ", these have " + std::to_string(input.height) + "x" +
                            std::to_string(input.width) + "; lower --set depth");
}

ir::Status check_input(const BuiltIn& model,
                       const SampleShape& input,
                       const std::vector<ModelOption>& options) {
  if (model.takes_text != input.is_text()) {
    return ir::make_error(
        ErrorKind::Usage, "bad-input-shape", "--model",
        std::string(model.name) + (input.is_text() ? " takes images and these data are text; want "
                                                     "--model gpt"
                                                   : " takes text and these data are images; want "
                                                     "a .txt file, or another model"));
  }
  if (model.build == build_unet) {
    return check_halves(input, options[1].whole());
  }
  return input.is_text() ? check_text(input, options) : check_image(model, input);
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
  for (const ModelOption& option : model_options(model)) {
    names.emplace_back(option.name);
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
  const ir::Result<std::vector<ModelOption>> read = read_model_options(name, options);
  if (!read.ok()) {
    return read.error();
  }
  if (ir::Status status = check_input(*model, input, read.value()); !status.ok()) {
    return status.error();
  }
  return model->build(input, classes, seed, read.value());
}

}  // namespace xpipe::executor::nn
