#include "bench/peers/ranks.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "bench/peers/handover.h"

#include "executor/c10d/gloo_links.h"
#include "executor/processes/launch_environment.h"
#include "executor/processes/meeting_place.h"

namespace xpipe::bench {

std::unique_ptr<executor::Processes> meet_other_rank() {
  const auto launch = value_of(executor::launch_environment(
      [](const char* name) -> const char* { return std::getenv(name); }));
  if (!launch) {
    return nullptr;
  }
  const executor::Patience patience{.time_out = std::chrono::seconds(120)};
  auto processes = std::make_unique<executor::Processes>(
      value_of(executor::connect_gloo(*launch, patience)),
      executor::ProcessesOptions{.rank = launch->rank, .time_out = std::chrono::seconds(600)});
  processes->set_devices(2);
  return processes;
}

}  // namespace xpipe::bench
