// Says everything that would make a viewer drop, move or misread something in a Chrome trace, ours
// or anybody's. Viewers are lenient and silent: they lose a slice and say nothing, so this is
// strict. The rules, with the code of their diagnostics:
//
//   trace-1   strict JSON in UTF-8, no key twice, no NaN or infinity
//   trace-2   every event is an object with a known `ph`, and with `ts` unless it is metadata
//   trace-3   ts and dur are numbers >= 0 in fixed notation that are whole nanoseconds (x 1000)
//   trace-4   pid and tid are whole numbers from 1 to 2^32 - 1
//   trace-5   on one (pid, tid) slices are disjoint or nested; of two that start together the
//             longer one comes first; every B has its E
//   trace-6   every pid and every (pid, tid) used has its name
//   trace-7   every flow (cat, name, id) has one s and one f, each inside a slice of its thread at
//             its time that was written before it, the s not after the f; ids of one type
//   trace-8   counters are flat objects of finite numbers with at most 15 fraction digits
//   trace-9   the file begins with {" and has an array `traceEvents`
//   trace-10  HTA finds the rank: the first `"rank": <digits>` of the file is distributedInfo's
//
// Source: Chrome's Trace Event Format; Perfetto's JSON importer and slice tracker; HTA's parser.
#pragma once

#include <string_view>
#include <vector>

#include "ir/status.h"

namespace xpipe::traces {

/// All faults: those of single events in the order of the file, then those between events; empty:
/// valid. A text that is not JSON (trace-1) has no other faults looked for but those of its first
/// bytes. `file` names the source in messages ("" for none). Linear but for sorting; thread-safe.
[[nodiscard]] std::vector<ir::Diagnostic> validate_trace(std::string_view text,
                                                         std::string_view file = "");

}  // namespace xpipe::traces
