// Work done ahead: bounded, in order, any order of asking, and ends that do not hang.
#include "executor/torch/prefetcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {
namespace {

using executor::nn::Prefetcher;
using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

std::vector<std::size_t> ascending(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// Notes what is loaded, and lets a test wait for it.
class Log {
 public:
  ir::Status add(std::size_t piece) {
    const std::lock_guard lock(mutex_);
    loaded_.push_back(piece);
    changed_.notify_all();
    return {};
  }

  std::vector<std::size_t> when(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kLong, [&] { return loaded_.size() >= count; }));
    return loaded_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> loaded_;
};

TEST_CASE("prefetcher: loads ahead in its order, no further than its depth, each piece once") {
  Log log;
  Prefetcher prefetcher(3, kLong);
  prefetcher.begin(8, ascending(8), [&log](std::size_t piece) { return log.add(piece); });
  CHECK(log.when(3) == ascending(3));
  for (std::size_t piece = 0; piece < 8; ++piece) {
    CHECK(log.when(std::min<std::size_t>(8, piece + 3)).size() <= piece + 3);
    CHECK(prefetcher.take(piece).ok());
  }
  CHECK(log.when(8) == ascending(8));
}

TEST_CASE("prefetcher: any order of asking is served, though it is not the order told") {
  Log log;
  Prefetcher prefetcher(2, kLong);
  prefetcher.begin(9, {0, 1, 2, 3}, [&log](std::size_t piece) { return log.add(piece); });
  for (const std::size_t piece : {8, 3, 0, 7, 2, 1, 4}) {
    CHECK(prefetcher.take(piece).ok());
  }
  std::vector<std::size_t> loaded = log.when(7);
  std::sort(loaded.begin(), loaded.end());
  CHECK(loaded == std::vector<std::size_t>{0, 1, 2, 3, 4, 7, 8});
}

TEST_CASE("prefetcher: several may wait at once") {
  Prefetcher prefetcher(1, kLong);
  prefetcher.begin(40, ascending(40), [](std::size_t) { return ir::Status(); });
  std::atomic<int> served{0};
  std::vector<std::thread> askers;
  for (std::size_t first = 0; first < 4; ++first) {
    askers.emplace_back([&, first] {
      for (std::size_t piece = 36 + first;; piece -= 4) {
        served += prefetcher.take(piece).ok() ? 1 : 0;
        if (piece < 4) {
          break;
        }
      }
    });
  }
  for (std::thread& asker : askers) {
    asker.join();
  }
  CHECK(served == 40);
}

TEST_CASE("prefetcher: the first fault reaches whoever waits, and all that ask later") {
  Prefetcher prefetcher(2, kLong);
  prefetcher.begin(6, ascending(6), [](std::size_t piece) -> ir::Status {
    return piece == 1
               ? ir::Status(ir::make_error(ir::ErrorKind::BadInput, "bad-jpeg", "b.jpg", "no"))
               : ir::Status();
  });
  CHECK(prefetcher.take(0).ok());
  for (const std::size_t piece : {1, 4, 1}) {
    const ir::Status status = prefetcher.take(piece);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().diagnostics.front().where == "b.jpg");
  }
}

TEST_CASE("prefetcher: a piece that does not come is a time-out that names it") {
  std::mutex gate;
  gate.lock();
  Prefetcher prefetcher(2, milliseconds(20));
  prefetcher.begin(3, ascending(3), [&gate](std::size_t) {
    const std::lock_guard wait(gate);
    return ir::Status();
  });
  const ir::Status status = prefetcher.take(2);
  gate.unlock();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().diagnostics.front().code == "loader-time-out");
  // Who waits for what, what the loader is at, and the way out.
  CHECK(status.error().to_string().find("micro-batch 2") != std::string::npos);
  CHECK(status.error().to_string().find("and it is ") != std::string::npos);
  CHECK(status.error().to_string().find("--timeout-s") != std::string::npos);
}

TEST_CASE("prefetcher: stops with work left, may begin again, and forgets what was") {
  Log first;
  Log second;
  Prefetcher prefetcher(2, kLong);
  prefetcher.begin(100, ascending(100), [&first](std::size_t piece) { return first.add(piece); });
  CHECK(prefetcher.take(0).ok());
  prefetcher.begin(2, ascending(2), [&second](std::size_t piece) { return second.add(piece); });
  CHECK(prefetcher.take(1).ok());
  CHECK(prefetcher.take(0).ok());
  CHECK_FALSE(prefetcher.take(0).ok());
  prefetcher.stop();
  CHECK(first.when(1).size() <= 4);
}

}  // namespace
}  // namespace xpipe::tests
