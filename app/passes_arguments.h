// The options that say where stages run and what the passes add: --devices, --placement,
// --replicas, --recompute, --sends, --clip-norm and --accumulate, the same for every command
// that compiles a schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ir/status.h"
#include "scheduler/compile.h"

namespace xpipe::app {

/// As typed.
struct PassesArguments {
  std::optional<std::uint32_t> devices;
  std::vector<std::uint32_t> placement;
  std::vector<std::uint32_t> replicas;
  std::string recompute = "none";
  std::string sends = "eager";
  std::optional<double> clip_norm;
  std::uint32_t accumulate = 1;

  /// The number of stages that these options take for granted where --stages is not given.
  [[nodiscard]] std::optional<std::uint32_t> implied_stages() const;

  /// Some option is not at its default.
  [[nodiscard]] bool any() const;
};

/// `arguments` must outlive `command`.
void add_passes_options(CLI::App& command, PassesArguments& arguments);

/// What `--sends` names.
[[nodiscard]] scheduler::Sends sends_of(const PassesArguments& arguments);

/// Errors: Usage, as of scheduler::resolve_layout().
[[nodiscard]] ir::Result<scheduler::Passes> resolve_passes(const PassesArguments& arguments,
                                                           std::uint32_t stages);

}  // namespace xpipe::app
