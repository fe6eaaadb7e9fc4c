#include "executor/c10d/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "executor/processes/failure.h"

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery(20);
constexpr milliseconds kGrace(2000);
constexpr milliseconds kAnswer(10'000);

std::string place_of(const LaunchEnvironment& launch) {
  return launch.address + ":" + std::to_string(launch.port);
}

std::vector<std::uint8_t> to_value(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string from_value(const std::vector<std::uint8_t>& value) {
  return {value.begin(), value.end()};
}

/// The first line of what a library threw; the rest is its stack.
std::string first_line(const std::exception& exception) {
  const std::string text = exception.what();
  return text.substr(0, text.find('\n'));
}

/// One rank's view of the meeting.
class Meeting {
 public:
  Meeting(c10d::Store& store, const LaunchEnvironment& launch, const Patience& patience)
      : store_(store), launch_(launch), patience_(patience), came_(launch.ranks) {}

  ir::Status run() {
    if (store_.add(key("count", launch_.rank), 1) > 1) {
      return fail(
          ir::make_error(ErrorKind::Runtime, "rank-taken", "",
                         "somebody has joined as rank " + std::to_string(launch_.rank) + " at " +
                             place_of(launch_) +
                             " before: an earlier run is left over there, or the launcher "
                             "gave one rank twice; end that one, or set another MASTER_PORT"));
    }
    store_.set(key("world", launch_.rank), to_value(std::to_string(launch_.ranks)));
    const steady_clock::time_point since = steady_clock::now();
    for (;;) {
      if (store_.check({"failed"})) {
        return heard_failure();
      }
      if (ir::Status status = look(); !status.ok()) {
        return fail(status.error());
      }
      const std::string missing = missing_ranks();
      if (missing.empty()) {
        return {};
      }
      if (ir::Status status =
              patience_.check(since, missing + " of " + std::to_string(launch_.ranks) +
                                         " to join at " + place_of(launch_));
          !status.ok()) {
        return fail(status.error());
      }
      std::this_thread::sleep_for(kLookEvery);
    }
  }

 private:
  [[nodiscard]] static std::string key(const char* what, std::uint32_t rank) {
    return std::string(what) + "/" + std::to_string(rank);
  }

  /// Whoever has come since the last look must have been told the same world size.
  ir::Status look() {
    for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
      if (came_[rank] || !store_.check({key("world", rank)})) {
        continue;
      }
      came_[rank] = true;
      const std::string world = from_value(store_.get(key("world", rank)));
      if (world != std::to_string(launch_.ranks)) {
        return ir::make_error(ErrorKind::Runtime, "world-size", "",
                              "was told that there are " + std::to_string(launch_.ranks) +
                                  " ranks, and rank " + std::to_string(rank) + " was told " +
                                  world + "; launch all ranks of a run together");
      }
    }
    return {};
  }

  [[nodiscard]] std::string missing_ranks() const {
    std::string missing;
    for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
      if (!came_[rank]) {
        missing += (missing.empty() ? "rank " : ", ") + std::to_string(rank);
      }
    }
    return missing;
  }

  /// Leaves word for the others. Rank 0 holds the store and stays until they have read it.
  ir::Error fail(const ir::Error& error) {
    const Failure failure{.rank = launch_.rank, .signal = 0, .error = error};
    const std::vector<std::uint8_t> first =
        store_.compareSet("failed", {}, to_value(to_bytes(failure)));
    if (launch_.rank == 0) {
      const steady_clock::time_point since = steady_clock::now();
      while (steady_clock::now() - since < kGrace && store_.add("seen", 0) < others()) {
        std::this_thread::sleep_for(kLookEvery);
      }
    }
    const ir::Result<Failure> kept = failure_from(from_value(first));
    return shown(kept.ok() ? kept.value() : failure);
  }

  ir::Error heard_failure() {
    store_.add("seen", 1);
    const ir::Result<Failure> failure = failure_from(from_value(store_.get("failed")));
    return failure.ok() ? shown(failure.value()) : failure.error();
  }

  [[nodiscard]] std::int64_t others() const {
    std::int64_t count = -1;  // rank 0 itself
    for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
      count += store_.check({key("world", rank)}) ? 1 : 0;
    }
    return count;
  }

  c10d::Store& store_;
  const LaunchEnvironment& launch_;
  const Patience& patience_;
  std::vector<bool> came_;  ///< by rank
};

ir::Error store_failed(const LaunchEnvironment& launch, const std::exception& exception) {
  const std::string what = first_line(exception);
  if (what.find("EADDRINUSE") != std::string::npos ||
      what.find("address already in use") != std::string::npos) {
    return ir::make_error(ErrorKind::Runtime, "port-in-use", "port " + std::to_string(launch.port),
                          "is in use; " + what);
  }
  return ir::make_error(
      ErrorKind::Runtime, "rendezvous", "rank " + std::to_string(launch.rank),
      "the meeting place " + place_of(launch) +
          (launch.rank == 0 ? " cannot be opened: " : ", which rank 0 holds, is gone: ") + what);
}

}  // namespace

ir::Result<c10::intrusive_ptr<c10d::Store>> open_store(const LaunchEnvironment& launch,
                                                       const Patience& patience) {
  const bool holds = launch.rank == 0 && !launch.agent_store;
  if (ir::Status status = holds ? check_port_free(launch.port)
                                : wait_for_listener(launch.address, launch.port, patience);
      !status.ok()) {
    return status.error();
  }
  try {
    c10d::TCPStoreOptions options;
    options.port = launch.port;
    options.isServer = holds;
    options.waitWorkers = false;
    // Somebody listens: who does not answer soon is gone again, or no store.
    options.timeout = std::min(duration_cast<milliseconds>(patience.time_out), kAnswer);
    auto store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    store->setTimeout(duration_cast<milliseconds>(patience.time_out));
    return c10::intrusive_ptr<c10d::Store>(
        c10::make_intrusive<c10d::PrefixStore>("xpipe/" + launch.attempt, std::move(store)));
  } catch (const std::exception& exception) {
    return patience.cause_of(store_failed(launch, exception));
  }
}

ir::Status join(c10d::Store& store, const LaunchEnvironment& launch, const Patience& patience) {
  try {
    return Meeting(store, launch, patience).run();
  } catch (const std::exception& exception) {
    return patience.cause_of(store_failed(launch, exception));
  }
}

}  // namespace xpipe::executor
