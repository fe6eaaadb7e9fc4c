// The axes of a sweep: with `xpipe simulate --sweep` every option may have several values, and
// every combination of them is a set-up, that is, one command line of `xpipe simulate` with one
// value each. So a set-up means exactly what that command line means.
//
//   --sweep --policy xpipe,gpipe --stages 2,4 --latency-us 0,100     8 set-ups
//     0: --policy xpipe --stages 2 --latency-us 0      1: --policy xpipe --stages 2 --latency-us
//     100 2: --policy xpipe --stages 4 --latency-us 0  ...
//
// Axes nest in one order whatever the order on the command line: first what makes another schedule,
// policies outermost, last what only changes costs, so that neighbours share a schedule.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ir/status.h"

namespace xpipe::app {

/// An option of `xpipe simulate` with all its words, as typed.
struct RawOption {
  std::string name;  ///< "--stages"
  std::vector<std::string> words;
};

/// Adds every option of `xpipe simulate` that a sweep takes to `command`, with any number of
/// values. The entries are filled in by the parse; they and the vector must outlive it.
void add_raw_options(CLI::App& command, std::vector<std::unique_ptr<RawOption>>& options);

struct SweepAxis {
  std::string option;               ///< "--stages"
  std::string key;                  ///< in records: "stages", "latency_us", "set.rounding"
  std::vector<std::string> values;  ///< as they follow the option: "4", "rounding=floor"

  /// The value as people read it: "4", "floor".
  [[nodiscard]] std::string shown(std::size_t value) const;
};

class SweepAxes {
 public:
  /// Lists are split at commas; an option whose value is a list or a file itself (--partition,
  /// --cluster, ...) is given several times instead. Errors: Usage, every value that its option
  /// refuses or that is there twice, and more than kMaxSetUps set-ups.
  [[nodiscard]] static ir::Result<SweepAxes> of(
      const std::vector<std::unique_ptr<RawOption>>& options);

  /// All options given, outermost first, those with one value included.
  [[nodiscard]] const std::vector<SweepAxis>& axes() const { return axes_; }

  /// Nullptr where the option is not given.
  [[nodiscard]] const SweepAxis* find(const std::string& option) const;

  [[nodiscard]] std::uint64_t set_ups() const { return set_ups_; }

  /// Which value each axis has in set-up `i`. Requires: i < set_ups().
  [[nodiscard]] std::vector<std::size_t> values_of(std::uint64_t i) const;

 private:
  std::vector<SweepAxis> axes_;
  std::uint64_t set_ups_ = 1;
};

inline constexpr std::uint64_t kMaxSetUps = 100'000'000;

}  // namespace xpipe::app
