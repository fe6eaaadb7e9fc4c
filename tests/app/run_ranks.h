// Runs `xpipe train` as several processes of one run, as a launcher would, and watches how each
// ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {

using Words = std::vector<std::string>;

[[nodiscard]] Words joined(Words words, const Words& more);

/// The command that trains a small mlp on the digits of examples/, a few mini-batches an epoch.
[[nodiscard]] Words train_on_digits(const Words& more, const char* timeout_s = "60");

/// A port of this machine that nobody has.
[[nodiscard]] std::uint16_t free_port();

[[nodiscard]] bool port_is_free(std::uint16_t port);

/// A socket that holds a port and answers nothing.
class TakenPort {
 public:
  TakenPort();
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  ~TakenPort();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

/// The processes of one run; those that are left at the end are killed.
class RankedRun {
 public:
  using Variables = std::map<std::string, std::string>;

  /// Meets at a free port of 127.0.0.1.
  explicit RankedRun(std::uint32_t world);
  /// Meets at `port`.
  RankedRun(std::uint32_t world, std::uint16_t port);
  RankedRun(const RankedRun&) = delete;
  RankedRun& operator=(const RankedRun&) = delete;
  ~RankedRun();

  /// Starts one rank; `more` replaces variables of the launcher or adds others.
  void start(std::uint32_t rank,
             const std::vector<std::string>& arguments,
             const Variables& more = {});

  /// Starts all ranks alike.
  void start_all(const std::vector<std::string>& arguments, const Variables& more = {});

  /// Starts the first `ranks` as children of a process of their own, as mpirun does.
  void launch(std::uint32_t ranks, const std::vector<std::string>& arguments);

  /// Kills that process; its ranks stay.
  void kill_launcher();

  void signal(std::uint32_t rank, int number);

  /// Stops `rank` at a moment for which `is_moment` holds once it stands still; SIGCONT goes on.
  void stop_when(std::uint32_t rank, const std::function<bool()>& is_moment);

  /// Until rank `rank` has written `marker` to stdout (or has ended).
  void wait_for(std::uint32_t rank, const std::string& marker);

  /// Until somebody listens at the port.
  void wait_for_port() const;

  /// How `rank` ended, once it has.
  [[nodiscard]] Answer wait(std::uint32_t rank);

  /// All that were started, by rank.
  [[nodiscard]] std::map<std::uint32_t, Answer> wait_all();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  [[nodiscard]] std::string file(std::uint32_t rank, const char* stream) const;
  /// Without waiting for it. While a launcher has it: no.
  [[nodiscard]] bool has_ended(std::uint32_t rank) const;
  /// This process becomes the rank.
  [[noreturn]] void become(std::uint32_t rank,
                           const std::vector<std::string>& arguments,
                           const Variables& variables) const;

  const std::uint32_t world_;
  const std::uint16_t port_;
  ScratchFolder folder_;
  std::map<std::uint32_t, pid_t> running_;
  pid_t launcher_ = 0;
};

}  // namespace xpipe::app_test
