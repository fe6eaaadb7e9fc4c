// `xpipe profile --from-trace`: a profile whose times are those of a run.
#pragma once

#include <string>

#include "ir/status.h"

namespace xpipe::app {

/// As typed.
struct CalibrationArguments {
  std::string from_trace;  ///< empty: nothing is calibrated
  std::string profile;     ///< what is calibrated
  std::string output;      ///< the new profile; empty: none is written
  std::string cluster;     ///< a file or built-in name whose devices are the run's; may be empty
  std::string cluster_output;  ///< those devices and the run's latencies; empty: none is written
  bool json = false;
};

/// Prints a table of medians by stage, or with `json` the new profile. Errors: Usage, BadInput,
/// Illegal as traces/calibrate.h; Runtime for outputs that cannot be written.
[[nodiscard]] ir::Status calibrate_profile(const CalibrationArguments& arguments);

}  // namespace xpipe::app
