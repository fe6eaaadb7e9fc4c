// Does numbered pieces of work ahead of those who need them, on a thread of its own: what keeps a
// first stage fed while its samples are decoded. No torch.
//
//   order   5 0 1 2 3 ...            taken    loaded, waiting    loading    to do
//           (as they will be asked)    5           0 1              2        3 ...
//                                             at most `depth` wait; then the thread rests
//
// A piece asked for before its turn is loaded next, so that no order of asking can stall. The first
// piece that fails ends the loading; whoever waits, then or later, gets its status.
//
// Thread-safety: take() from any thread; begin(), stop() and the destructor from the owner's, while
// nobody is in take().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

class Prefetcher {
 public:
  /// Makes piece `piece` ready. Called on the prefetcher's thread, each piece once at most.
  using Load = std::function<ir::Status(std::size_t piece)>;

  /// At most `depth` pieces wait to be taken; nobody waits longer than `time_out` for one.
  /// Requires: depth >= 1.
  Prefetcher(std::size_t depth, std::chrono::milliseconds time_out);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  /// Starts on pieces 0 ... pieces - 1, in `order`, which may leave some out: those are loaded when
  /// asked for. Stops what went on before.
  void begin(std::size_t pieces, std::vector<std::size_t> order, Load load);

  /// Waits until `piece` is ready. Then it is the caller's, and room for another.
  /// Errors: those of the load that failed first; Runtime "loader-time-out".
  [[nodiscard]] ir::Status take(std::size_t piece);

  /// Ends the thread after the piece it is at.
  void stop();

 private:
  enum class State : unsigned char { ToDo, Loading, Ready, Taken };

  void run();
  [[nodiscard]] std::optional<std::size_t> next() const;
  [[nodiscard]] std::string at_work() const;

  const std::size_t depth_;
  const std::chrono::milliseconds time_out_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Below: under mutex_, but that begin() writes them while there is no thread.
  Load load_;
  std::vector<std::size_t> order_;
  std::size_t place_ = 0;  ///< in order_: all before it are no longer to do
  std::vector<State> states_;
  std::vector<std::size_t> asked_;  ///< that somebody waits for and that are to do
  std::size_t ready_ = 0;
  bool stopping_ = false;
  ir::Status failed_;
};

}  // namespace xpipe::executor::nn
