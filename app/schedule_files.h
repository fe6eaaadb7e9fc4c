// Reading schedules from files: JSON or `.tasks`, readable and legal.
#pragma once

#include <string>

#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::app {

/// Told by the suffix `.tasks`, else JSON. Errors: BadInput; Illegal with every fault.
[[nodiscard]] ir::Result<ir::Schedule> read_legal_schedule(const std::string& path);

}  // namespace xpipe::app
