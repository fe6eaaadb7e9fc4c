#include "executor/processes/stops.h"

#include <csignal>

namespace xpipe::executor {

bool Stops::is_interrupted() const {
  return interrupted != nullptr && interrupted->load(std::memory_order_relaxed);
}

int Stops::signal_number() const {
  return signal ? signal() : SIGINT;
}

bool Stops::is_ctrl_c() const {
  return is_interrupted() && signal_number() == SIGINT;
}

}  // namespace xpipe::executor
