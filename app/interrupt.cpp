#include "app/interrupt.h"

#include <csignal>

namespace xpipe::app {

namespace {

// Signal handlers can reach nothing but globals.
std::atomic<bool> g_interrupted = false;
std::atomic<int> g_signal = 0;

extern "C" void note_signal(int signal) {
  g_signal = signal;
  g_interrupted = true;
  // The next one is not caught: a run that does not drain can still be ended.
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>& InterruptGuard::interrupted() {
  return g_interrupted;
}

int InterruptGuard::exit_status() {
  return 128 + (g_signal == 0 ? SIGINT : g_signal.load());
}

}  // namespace xpipe::app
