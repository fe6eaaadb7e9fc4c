// A sweep for people: its records as one table, and what is wrong with the set-ups that have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/sweep_axes.h"

namespace xpipe::app {

class SweepTable {
 public:
  /// `axes` must outlive the table.
  explicit SweepTable(const SweepAxes& axes) : axes_(axes) {}

  /// The record of the next set-up, a line of JSON as SetUpEvaluator writes it.
  void add(const std::string& record);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }

  /// The status with which the worst set-up would have ended on its own; 0 when all have results.
  [[nodiscard]] int worst_status() const { return worst_status_; }

  /// All set-ups in order; with `best`, only so many, the fastest first.
  [[nodiscard]] std::string to_string(const std::optional<std::size_t>& best) const;

  /// One line for each fault, with the first set-up that has it and how many have.
  [[nodiscard]] std::vector<std::string> faults() const;

 private:
  struct Row {
    std::uint64_t set_up = 0;
    std::optional<double> samples_per_s;
    std::vector<std::string> results;  ///< cells; of a set-up without results only the first
  };

  struct Fault {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };

  [[nodiscard]] std::string set_up_text(std::uint64_t i) const;

  const SweepAxes& axes_;
  std::vector<Row> rows_;
  std::map<std::string, Fault> faults_;  ///< by message
  int worst_status_ = 0;
};

}  // namespace xpipe::app
