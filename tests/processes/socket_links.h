// Ranks as threads of one process, joined by socket pairs: what tests of several processes run on
// where real processes are not the point.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "executor/processes/link.h"
#include "executor/processes/processes.h"

namespace xpipe::tests {

/// One end of a stream socket.
class SocketLink final : public executor::Link {
 public:
  explicit SocketLink(int fd) : fd_(fd) {}

  ~SocketLink() override;

  ir::Status send(std::span<const std::byte> bytes) override;
  ir::Status receive(std::span<std::byte> bytes) override;
  void abort() override;

 private:
  const int fd_;
};

/// links[r][p]: rank r's link to rank p; none for p == r.
[[nodiscard]] std::vector<std::vector<std::unique_ptr<executor::Link>>> socket_links(
    std::uint32_t ranks);

/// Runs `body` once a rank, each in a thread, over fresh links; returns when all have returned.
void run_ranks(std::uint32_t ranks,
               const std::function<void(executor::Processes&)>& body,
               std::chrono::nanoseconds time_out = std::chrono::seconds(60));

}  // namespace xpipe::tests
