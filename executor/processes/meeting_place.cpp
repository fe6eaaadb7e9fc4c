#include "executor/processes/meeting_place.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace xpipe::executor {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTryEvery(50);
constexpr milliseconds kOneTry(1000);

std::string message_of(int error) {
  return std::generic_category().message(error);
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}

  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

/// Empty: somebody listens at one of the addresses; else why not.
std::string try_addresses(const addrinfo* list) {
  std::string why = "no address";
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const Socket socket(
        ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (socket.fd() < 0) {
      why = message_of(errno);
      continue;
    }
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) == 0) {
      return "";
    }
    if (errno != EINPROGRESS) {
      why = message_of(errno);
      continue;
    }
    pollfd waiting{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
    int error = ETIMEDOUT;
    if (::poll(&waiting, 1, static_cast<int>(kOneTry.count())) > 0) {
      socklen_t size = sizeof(error);
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      return "";
    }
    why = message_of(error);
  }
  return why;
}

std::string try_to_connect(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
      failed != 0) {
    return gai_strerror(failed);
  }
  const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  return try_addresses(list);
}

ir::Error interruption(const Stops& stops, const std::string& during) {
  return ir::make_error(ir::ErrorKind::Interrupted,
                        stops.signal_number() == SIGTERM ? "terminated" : "interrupted", "",
                        "stopped by a signal while " + during);
}

}  // namespace

ir::Status Patience::check(steady_clock::time_point since, const std::string& awaited) const {
  if (stops.is_interrupted()) {
    return interruption(stops, "waiting for " + awaited);
  }
  if (stops.launcher.is_gone()) {
    return stops.launcher.error();
  }
  if (steady_clock::now() - since < time_out) {
    return {};
  }
  std::ostringstream text;
  text << "waited " << std::chrono::duration<double>(time_out).count() << " s for " << awaited
       << "; start what is missing, or raise --timeout-s";
  return ir::make_error(ir::ErrorKind::Runtime, "time-out", "", text.str());
}

ir::Error Patience::cause_of(ir::Error error) const {
  const bool before = stops.is_interrupted();
  const steady_clock::time_point until = steady_clock::now() + kSignalMoment;
  while (!stops.is_interrupted() && stops.interrupted != nullptr && steady_clock::now() < until) {
    std::this_thread::sleep_for(kSignalEvery);
  }
  return before || stops.is_ctrl_c() ? interruption(stops, "the ranks met") : std::move(error);
}

ir::Status check_port_free(std::uint16_t port) {
  const std::string name = "port " + std::to_string(port);
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) {
    return ir::make_error(ir::ErrorKind::Runtime, "port", name,
                          "cannot be tried: " + message_of(errno));
  }
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0) {
    return {};
  }
  if (errno == EADDRINUSE) {
    return ir::make_error(
        ir::ErrorKind::Runtime, "port-in-use", name,
        "is in use, by another program or by a run that was left over; end that "
        "one, or set MASTER_PORT to a free port (torchrun --standalone finds one)");
  }
  return ir::make_error(ir::ErrorKind::Runtime, "port", name,
                        "cannot be opened: " + message_of(errno));
}

ir::Status wait_for_listener(const std::string& host,
                             std::uint16_t port,
                             const Patience& patience) {
  const steady_clock::time_point since = steady_clock::now();
  for (;;) {
    const std::string why = try_to_connect(host, port);
    if (why.empty()) {
      return {};
    }
    std::string awaited = "rank 0 to open the meeting place ";
    awaited.append(host).append(":").append(std::to_string(port));
    awaited.append(" (MASTER_ADDR, MASTER_PORT; the last try: ").append(why).append(")");
    if (ir::Status status = patience.check(since, awaited); !status.ok()) {
      return status;
    }
    std::this_thread::sleep_for(kTryEvery);
  }
}

}  // namespace xpipe::executor
