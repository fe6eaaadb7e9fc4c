// One tiny broken schedule, or several, for every code of the validator.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ir/schedule.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir::tests {

/// A schedule with one fault, and how that is told.
struct Broken {
  std::string_view code;
  std::string_view base;
  Edits edits;
  std::string_view where;
  std::string_view says;
  /// For what a .tasks file cannot say.
  std::function<void(Schedule&)> change = nullptr;
  std::string_view also = "";  ///< the code of a second fault that cannot but come with it
};

/// Those of replicated stages; they are among broken_schedules().
[[nodiscard]] std::vector<Broken> broken_replicas();

/// Those of sums of tied weights and of clips.
[[nodiscard]] std::vector<Broken> broken_exchanges();

/// At least one for each of validation_rules(): validate_test.cpp sees to that.
[[nodiscard]] const std::vector<Broken>& broken_schedules();

}  // namespace xpipe::ir::tests
