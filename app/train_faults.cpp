#include "app/train_faults.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "ir/text.h"

namespace xpipe::app {

namespace {

struct Fault {
  std::uint32_t rank = 0;
  std::string task;  ///< its text begins so
  std::string action;
  std::uint32_t number = 0;
};

/// The process grows no more, and what the heap has left is taken: the next tensor is refused.
void take_no_more_memory() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  static void* taken = nullptr;  // a chain, never given back
  for (const std::size_t size :
       {std::size_t{1} << 20, std::size_t{1} << 16, std::size_t{1} << 14}) {
    while (void* block = std::malloc(size)) {
      *static_cast<void**>(block) = taken;
      taken = block;
    }
  }
}

void act(const Fault& fault) {
  if (fault.action == "throw") {
    throw std::runtime_error("a fault was asked for by XPIPE_TEST_FAULT");
  }
  if (fault.action == "memory") {
    take_no_more_memory();
  } else if (fault.action == "exit") {
    std::_Exit(static_cast<int>(fault.number));
  } else if (fault.action == "kill") {
    kill(getpid(), SIGKILL);
  } else if (fault.action == "stop") {
    kill(getpid(), SIGSTOP);
  } else if (fault.action == "int") {
    kill(getpid(), SIGINT);
  } else if (fault.action == "term") {
    kill(getpid(), SIGTERM);
  } else if (fault.action == "slow") {
    std::this_thread::sleep_for(std::chrono::milliseconds(fault.number));
  } else if (fault.action == "hang") {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
}

ir::Result<std::vector<Fault>> parse(const std::string& text) {
  constexpr const char* kActions[] = {"throw", "memory", "exit", "kill", "stop",
                                      "int",   "term",   "slow", "hang"};
  std::vector<Fault> faults;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ';');) {
    std::istringstream words(one);
    Fault fault;
    words >> fault.rank >> fault.task >> fault.action;
    if (const std::size_t equals = fault.action.find('='); equals != std::string::npos) {
      fault.number = static_cast<std::uint32_t>(std::atoi(fault.action.c_str() + equals + 1));
      fault.action.resize(equals);
    }
    const bool known =
        std::find(std::begin(kActions), std::end(kActions), fault.action) != std::end(kActions);
    if (!words || !known) {
      return ir::make_error(ir::ErrorKind::Usage, "fault", "XPIPE_TEST_FAULT",
                            "found '" + one + "', expected RANK TASK ACTION");
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace

ir::Status inject_faults(const std::string& text,
                         std::uint32_t rank,
                         executor::HandlerTable& handlers) {
  ir::Result<std::vector<Fault>> faults = parse(text);
  if (!faults.ok()) {
    return faults.error();
  }
  for (const Fault& fault : faults.value()) {
    if (fault.rank != rank) {
      continue;
    }
    for (executor::Handler& handler : handlers) {
      if (handler) {
        handler = [fault, inner = std::move(handler)](const ir::Schedule& schedule,
                                                      ir::TaskId task) {
          if (ir::to_text(schedule.task(task)).starts_with(fault.task)) {
            act(fault);
          }
          return inner(schedule, task);
        };
      }
    }
  }
  return {};
}

}  // namespace xpipe::app
