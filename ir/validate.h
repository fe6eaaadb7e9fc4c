// The validator: says everything that is wrong with a schedule, at once. Levels, each assuming the
// ones before:
//   shape          ids in range, every task in exactly one lane, no cycle among lanes and edges
//   meaning        each micro-batch once per stage and direction, backward after forward, slots
//                  and versions as the tasks say (found by replaying every slot), no slot race
//   communication  every tensor that crosses devices is sent and received once, in one order per
//                  link, with equal bytes, and its consumer waits for it
//   resources      slots used are declared, none is declared in vain
// A level that finds faults stops the levels after it. Thread-safe; linear in tasks and edges but
// for a sort of the messages (a stage that works on several lanes costs a factor of their number).
//
// What waits for what: a task waits for the tasks before it in its lane, and for the sources of its
// edges with what stands before those in their lanes. Which stage feeds which is not stored, so
// every stage but the first must get input from an earlier stage, by a message or on its own
// device, and every stage but the last a gradient from a later one; each activation sent brings a
// gradient back, unless the schedule has no backward and no step at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::ir {

enum class ValidationLevel : std::uint8_t { Shape, Meaning, Communication, Resources };

/// One thing that validate() checks. `code` is stable; `rule` is what a legal schedule does.
struct ValidationRule {
  std::string_view code;
  ValidationLevel level;
  std::string_view rule;
};

/// All of them, by level. tests/ir/validate_test.cpp has a broken example of each.
[[nodiscard]] std::span<const ValidationRule> validation_rules();

/// Faults of one code that are told one by one; what is beyond is counted in one more diagnostic.
inline constexpr std::size_t kMaxFaultsPerCode = 100;

/// All faults of the first level that has any, in the order of tasks; empty: legal. `where` is the
/// text form of the task, or a lane, an edge or a stage.
[[nodiscard]] std::vector<Diagnostic> validate(const Schedule& schedule);

/// validate() as a Status of ErrorKind::Illegal.
Status check_legal(const Schedule& schedule);

}  // namespace xpipe::ir
