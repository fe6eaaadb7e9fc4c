// The one place that names every policy.
#pragma once

#include "scheduler/policy.h"

namespace xpipe::policies {

/// Adds every policy to `registry`, in the order in which they are listed to people.
void register_all(scheduler::PolicyRegistry& registry);

}  // namespace xpipe::policies
