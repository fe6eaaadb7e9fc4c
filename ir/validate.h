// The validator: says everything that is wrong with a schedule, at once. Levels, each assuming the
// ones before:
//   shape          ids in range, every task in exactly one lane, no cycle among lanes and edges
//   meaning        each micro-batch once per stage and direction, backward after forward, slots
//                  and versions as the tasks say (found by replaying every slot), no slot race
//   communication  every tensor that crosses devices is sent and received once, in one order per
//                  link, with equal bytes, and its consumer waits for it
//   resources      slots used are declared, none is declared in vain
// A level that finds faults stops the levels after it. Thread-safe; linear in tasks and edges
// (a slot touched from several lanes costs a factor of the number of lanes).
#pragma once

#include <string>
#include <vector>

#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::ir {

/// All faults of the first level that has any, in the order of tasks; empty: legal. Codes are
/// stable and listed with a broken example each in tests/ir/validate_test.cpp.
[[nodiscard]] std::vector<Diagnostic> validate(const Schedule& schedule);

/// validate() as a Status of ErrorKind::Illegal.
Status check_legal(const Schedule& schedule);

}  // namespace xpipe::ir
