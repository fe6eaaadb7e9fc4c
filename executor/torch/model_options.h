// The sizes that a built-in model lets its user set (`--set hidden=64`): names, defaults, limits.
// No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

enum class OptionKind : std::uint8_t {
  Whole,  ///< a whole number
  Real,   ///< any number
  Flag,   ///< true or false
};

struct ModelOption {
  std::string_view name;
  double value = 0.0;  ///< the default, then what was asked for; a flag: 0 or 1
  double least = 1.0;
  double most = 65536.0;
  OptionKind kind = OptionKind::Whole;
  std::string_view help;

  [[nodiscard]] std::int64_t whole() const { return static_cast<std::int64_t>(value); }

  [[nodiscard]] bool flag() const { return value != 0.0; }
};

/// Those of `model`, with defaults; empty for a model that has none, and for a name that is none.
///   mlp  hidden, depth
///   unet  width, depth
///   gpt  layers, width, heads, sequence, tie, dropout, vocabulary
/// A model of the user's own (is_model_file()) has sequence.
[[nodiscard]] std::vector<ModelOption> model_options(std::string_view model);

/// The same with the values of `options`. Errors: Usage, every unknown name and bad value.
[[nodiscard]] ir::Result<std::vector<ModelOption>> read_model_options(
    std::string_view model, const std::map<std::string, std::string>& options);

/// Tokens of a sample that `model` wants; 0 where it takes images, has no options or is unknown.
/// Errors: as read_model_options().
[[nodiscard]] ir::Result<std::uint32_t> sequence_of(
    std::string_view model, const std::map<std::string, std::string>& options);

}  // namespace xpipe::executor::nn
