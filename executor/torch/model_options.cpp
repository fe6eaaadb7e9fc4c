#include "executor/torch/model_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "executor/torch/model_names.h"
#include "ir/decimal.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;

std::optional<double> parse(const std::string& text, const ModelOption& option) {
  if (option.kind == OptionKind::Flag) {
    return text == "true"    ? std::optional(1.0)
           : text == "false" ? std::optional(0.0)
                             : std::nullopt;
  }
  double value = 0.0;
  const auto format =
      option.kind == OptionKind::Whole ? std::chars_format::fixed : std::chars_format::general;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, format);
  const bool is_digits =
      option.kind == OptionKind::Real ||
      std::ranges::all_of(text, [](char letter) { return letter >= '0' && letter <= '9'; });
  if (fault != std::errc() || end != text.data() + text.size() || !is_digits ||
      !std::isfinite(value) || value < option.least || value > option.most) {
    return std::nullopt;
  }
  return value;
}

std::string wanted(const ModelOption& option) {
  if (option.kind == OptionKind::Flag) {
    return "true or false";
  }
  return std::string(option.kind == OptionKind::Whole ? "a whole number" : "a number") + " from " +
         ir::number_text(option.least) + " to " + ir::number_text(option.most);
}

}  // namespace

std::vector<ModelOption> model_options(std::string_view model) {
  if (model == "mlp") {
    return {{.name = "hidden", .value = 128, .help = "width of the hidden layers"},
            {.name = "depth", .value = 7, .most = 1024, .help = "how many"}};
  }
  if (model == "unet") {
    return {{.name = "width", .value = 16, .most = 1024, .help = "channels of the first level"},
            {.name = "depth", .value = 2, .most = 6, .help = "levels, each half as large"}};
  }
  if (model == "gpt") {
    return {{.name = "layers", .value = 8, .most = 1024, .help = "transformer blocks"},
            {.name = "width", .value = 256, .help = "numbers a token"},
            {.name = "heads", .value = 4, .most = 1024, .help = "of attention; divide the width"},
            {.name = "sequence", .value = 128, .help = "tokens a sample"},
            {.name = "tie",
             .value = 0,
             .least = 0,
             .most = 1,
             .kind = OptionKind::Flag,
             .help = "embedding and head share their weights"},
            {.name = "dropout",
             .value = 0,
             .least = 0,
             .most = 0.99,
             .kind = OptionKind::Real,
             .help = "probability"},
            {.name = "vocabulary",
             .value = 0,
             .least = 0,
             .most = 1 << 20,
             .help = "tokens there are; 0: as many as the data have"}};
  }
  if (is_model_file(model)) {
    return {{.name = "sequence",
             .value = 0,
             .least = 0,
             .help = "tokens a sample, where the data are text"}};
  }
  return {};
}

bool is_model_file(std::string_view model) {
  return model.ends_with(".pt") || model.find_first_of("/,") != std::string_view::npos;
}

ir::Result<std::vector<ModelOption>> read_model_options(
    std::string_view model, const std::map<std::string, std::string>& options) {
  std::vector<ModelOption> read = model_options(model);
  ir::Error error{ErrorKind::Usage, {}};
  std::string legal;
  for (const ModelOption& option : read) {
    legal += (legal.empty() ? "" : ", ") + std::string(option.name);
  }
  for (const auto& [name, text] : options) {
    const auto option = std::ranges::find(read, name, &ModelOption::name);
    if (option == read.end()) {
      error.diagnostics.push_back({"unknown-option", name,
                                   "model " + std::string(model) + " has no option '" + name +
                                       "'; " +
                                       (legal.empty() ? "it has none" : "it has: " + legal)});
      continue;
    }
    const std::optional<double> value = parse(text, *option);
    if (!value) {
      error.diagnostics.push_back(
          {"bad-option", name, "found '" + text + "'; want " + wanted(*option)});
      continue;
    }
    option->value = *value;
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return read;
}

ir::Result<std::uint32_t> sequence_of(std::string_view model,
                                      const std::map<std::string, std::string>& options) {
  if (model_options(model).empty()) {
    return 0U;  // none of these is a model of text; what is wrong with it, build_model() says
  }
  const ir::Result<std::vector<ModelOption>> read = read_model_options(model, options);
  if (!read.ok()) {
    return read.error();
  }
  const auto found =
      std::ranges::find(read.value(), std::string_view("sequence"), &ModelOption::name);
  return found == read.value().end() ? 0U : static_cast<std::uint32_t>(found->whole());
}

}  // namespace xpipe::executor::nn
