// Where the ranks meet: a port that is free or not, a listener that comes or does not.
#include "executor/processes/meeting_place.h"

#include <csignal>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace xpipe::tests {

namespace {

using executor::Patience;
using std::chrono::milliseconds;

/// A port of this machine, held; listening once told to.
class HeldPort {
 public:
  HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0);
    socklen_t size = sizeof(any);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size) == 0);
    port_ = ntohs(any.sin_port);
  }

  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  ~HeldPort() { close(fd_); }

  void listen() const { REQUIRE(::listen(fd_, 4) == 0); }

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  const int fd_;
  std::uint16_t port_ = 0;
};

}  // namespace

TEST_CASE("meeting place: a port that is held is named, and free again afterwards") {
  std::uint16_t port = 0;
  {
    const HeldPort held;
    held.listen();
    port = held.port();
    const ir::Status taken = executor::check_port_free(port);
    REQUIRE(!taken.ok());
    CHECK(taken.error().kind == ir::ErrorKind::Runtime);
    CHECK(taken.error().to_string().find("port " + std::to_string(port) + ": is in use") == 0);
  }
  CHECK(executor::check_port_free(port).ok());
}

TEST_CASE("meeting place: a listener that comes later is waited for") {
  const HeldPort held;
  std::thread later([&held] {
    std::this_thread::sleep_for(milliseconds(120));
    held.listen();
  });
  CHECK(executor::wait_for_listener("127.0.0.1", held.port(), Patience{}).ok());
  later.join();
}

TEST_CASE("meeting place: nobody there ends in a time-out with the address and the last reason") {
  const HeldPort silent;  // bound, so that nobody else takes it, and refusing
  const ir::Status status = executor::wait_for_listener("127.0.0.1", silent.port(),
                                                        Patience{.time_out = milliseconds(150)});
  REQUIRE(!status.ok());
  CHECK(status.error().kind == ir::ErrorKind::Runtime);
  const std::string text = status.error().to_string();
  CHECK(text.find("waited 0.15 s for rank 0 to open the meeting place 127.0.0.1:" +
                  std::to_string(silent.port())) != std::string::npos);
  CHECK(text.find("refused") != std::string::npos);
}

TEST_CASE("meeting place: a wait can be interrupted, and says by what") {
  const HeldPort silent;
  const std::atomic<bool> interrupted = true;
  for (const auto& [signal, code] : {std::pair{SIGINT, "interrupted"}, {SIGTERM, "terminated"}}) {
    const ir::Status status = executor::wait_for_listener(
        "127.0.0.1", silent.port(),
        Patience{.stops = {.interrupted = &interrupted,
                           .signal = [number = signal] { return number; }}});
    REQUIRE(!status.ok());
    CHECK(status.error().kind == ir::ErrorKind::Interrupted);
    CHECK(status.error().diagnostics[0].code == code);
  }
}

TEST_CASE("meeting place: a Ctrl-C that comes a moment later is why the others are gone") {
  const ir::Error gone = ir::make_error(ir::ErrorKind::Runtime, "rendezvous", "rank 1", "is gone");
  CHECK(Patience{}.cause_of(gone).to_string() == gone.to_string());
  for (const int number : {0, SIGINT, SIGTERM}) {
    CAPTURE(number);
    std::atomic<bool> interrupted = false;
    const Patience patience{
        .stops = {.interrupted = &interrupted, .signal = [=] { return number; }}};
    std::thread signal([&] {
      std::this_thread::sleep_for(milliseconds(50));
      interrupted = number != 0;
    });
    const ir::Error cause = patience.cause_of(gone);
    signal.join();
    CHECK(cause.to_string().find(number == SIGINT ? "stopped by a signal" : "is gone") !=
          std::string::npos);
    if (number == SIGTERM) {  // which may be a launcher's answer; the same before is none
      CHECK(patience.cause_of(gone).diagnostics.front().code == "terminated");
    }
  }
}

TEST_CASE("meeting place: a host that does not exist is said") {
  const ir::Status status = executor::wait_for_listener("no-such-host.invalid", 1,
                                                        Patience{.time_out = milliseconds(10)});
  REQUIRE(!status.ok());
  CHECK(status.error().to_string().find("no-such-host.invalid:1") != std::string::npos);
}

}  // namespace xpipe::tests
