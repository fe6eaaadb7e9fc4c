// The schedule as JSON (`"format": "xpipe.schedule"`), for storage. Tasks stand in their text form:
//
//   {"format": "xpipe.schedule", "version": 1, "policy": "gpipe", "options": {},
//    "micro_batches": 4, "mini_batches": 2, "devices": 2,
//    "stages": [{"device": 0, "slots": 1}, ...],
//    "tasks": ["0F0[s0:v0]", ...],
//    "lanes": [{"kind": "compute", "device": 0, "tasks": [0, 1, 4]},
//              {"kind": "send", "device": 0, "peer": 1, "tasks": [2]}, ...],
//    "edges": [[0, 2], ...]}
#pragma once

#include <string>
#include <string_view>

#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::ir {

/// The same schedule gives the same bytes.
[[nodiscard]] std::string schedule_to_json(const Schedule& schedule);

/// Strict: unknown or doubled keys, wrong types, numbers out of range, too deep nesting are
/// refused. Errors: BadInput, every fault with its JSON path (or line and column where it is not
/// JSON). The result is readable, not yet legal: run validate() on it.
[[nodiscard]] Result<Schedule> schedule_from_json(std::string_view text, std::string_view file);

}  // namespace xpipe::ir
