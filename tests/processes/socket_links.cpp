#include "tests/processes/socket_links.h"

#include <cerrno>
#include <cstring>
#include <thread>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace xpipe::tests {

namespace {

ir::Error lost(const char* what) {
  return ir::make_error(ir::ErrorKind::Runtime, "link", "", what);
}

}  // namespace

SocketLink::~SocketLink() {
  close(fd_);
}

ir::Status SocketLink::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return lost("cannot send");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

ir::Status SocketLink::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t came = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (came < 0 && errno == EINTR) {
      continue;
    }
    if (came <= 0) {
      return lost("closed by peer");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(came));
  }
  return {};
}

void SocketLink::abort() {
  shutdown(fd_, SHUT_RDWR);
}

std::vector<std::vector<std::unique_ptr<executor::Link>>> socket_links(std::uint32_t ranks) {
  std::vector<std::vector<std::unique_ptr<executor::Link>>> links(ranks);
  for (auto& of_rank : links) {
    of_rank.resize(ranks);
  }
  for (std::uint32_t a = 0; a < ranks; ++a) {
    for (std::uint32_t b = a + 1; b < ranks; ++b) {
      int ends[2];
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      links[a][b] = std::make_unique<SocketLink>(ends[0]);
      links[b][a] = std::make_unique<SocketLink>(ends[1]);
    }
  }
  return links;
}

void run_ranks(std::uint32_t ranks,
               const std::function<void(executor::Processes&)>& body,
               std::chrono::nanoseconds time_out) {
  auto links = socket_links(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      executor::Processes peers(std::move(links[rank]), {.rank = rank, .time_out = time_out});
      body(peers);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace xpipe::tests
