// Parsing of single arguments, strictly: the whole string counts, the option at fault is named with
// the value as it was typed. CLI11 finds the options; what their values mean is decided here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::app {

/// Usage "options": what is wrong with an option, named as it is typed.
[[nodiscard]] ir::Error usage(std::string option, std::string message);

/// A whole decimal number in [low, high]; anything else is a CLI::ValidationError.
void whole_number(CLI::App& app,
                  const std::string& option,
                  std::uint32_t& value,
                  std::uint32_t low,
                  std::uint32_t high,
                  const std::string& help);

/// The same where absence means something.
void whole_number(CLI::App& app,
                  const std::string& option,
                  std::optional<std::uint32_t>& value,
                  std::uint32_t low,
                  std::uint32_t high,
                  const std::string& help);

/// A comma-separated list of whole numbers in [low, high].
void whole_numbers(CLI::App& app,
                   const std::string& option,
                   std::vector<std::uint32_t>& values,
                   std::uint32_t low,
                   std::uint32_t high,
                   const std::string& help);

/// A comma-separated list of sizes, a number and a unit each: B (or none), kB, MB, GB, TB for
/// powers of 1000, KiB, MiB, GiB, TiB for powers of 1024.
void byte_sizes(CLI::App& app,
                const std::string& option,
                std::vector<ir::Bytes>& values,
                const std::string& help);

/// "35MB" is 35000000, "1.5GiB" 1610612736; rounded half up to a byte. Nothing for anything else.
[[nodiscard]] std::optional<ir::Bytes> parse_byte_size(const std::string& word);

/// A finite decimal number in [low, high].
void real_number(CLI::App& app,
                 const std::string& option,
                 std::optional<double>& value,
                 double low,
                 double high,
                 const std::string& help);

/// The same, and `if_bare` where the option stands without a number.
void real_number_or(CLI::App& app,
                    const std::string& option,
                    std::optional<double>& value,
                    double if_bare,
                    double low,
                    double high,
                    const std::string& help);

/// Microseconds with at most three decimals, kept as nanoseconds.
void microseconds(CLI::App& app,
                  const std::string& option,
                  std::optional<ir::Nanos>& value,
                  const std::string& help);

/// One of `legal`, said in the help and in the error.
void one_of(CLI::App& app,
            const std::string& option,
            std::string& value,
            const std::vector<std::string>& legal,
            const std::string& help);

/// A text that may not be empty: a file's name, a list of policies.
CLI::Option* text(CLI::App& app,
                  const std::string& option,
                  std::string& value,
                  const std::string& type,
                  const std::string& help);

/// `--set key=value`, repeatable; a key given twice is refused by parse_settings().
void settings(CLI::App& app, std::vector<std::string>& values);

/// Errors: Usage for every entry that is not key=value, and every key given twice.
[[nodiscard]] ir::Result<std::map<std::string, std::string>> parse_settings(
    const std::vector<std::string>& values);

/// Splits at commas; empty parts stay.
[[nodiscard]] std::vector<std::string> split_list(const std::string& text);

}  // namespace xpipe::app
