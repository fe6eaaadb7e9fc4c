#include "tests/app/run_ranks.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xpipe::app_test {

namespace {

/// A socket bound to `port` (0: any) of all addresses, or -1.
int bound_socket(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_in bound{};
  socklen_t size = sizeof(bound);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0);
  return ntohs(bound.sin_port);
}

}  // namespace

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words train_on_digits(const Words& more, const char* timeout_s) {
  return joined({"train", "--model", "mlp", "--set", "hidden=8", "--data",
                 in_tree("examples/data/digits"), "--timeout-s", timeout_s},
                more);
}

std::uint16_t free_port() {
  const int fd = bound_socket(0);
  REQUIRE(fd >= 0);
  const std::uint16_t port = port_of(fd);
  close(fd);
  return port;
}

bool port_is_free(std::uint16_t port) {
  const int fd = bound_socket(port);
  if (fd >= 0) {
    close(fd);
  }
  return fd >= 0;
}

TakenPort::TakenPort() : fd_(bound_socket(0)) {
  REQUIRE(fd_ >= 0);
  REQUIRE(listen(fd_, 8) == 0);
  port_ = port_of(fd_);
}

TakenPort::~TakenPort() {
  close(fd_);
}

RankedRun::RankedRun(std::uint32_t world) : RankedRun(world, free_port()) {}

RankedRun::RankedRun(std::uint32_t world, std::uint16_t port) : world_(world), port_(port) {}

RankedRun::~RankedRun() {
  if (launcher_ > 0) {
    kill_launcher();
  }
  for (const auto& [rank, pid] : running_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

std::string RankedRun::file(std::uint32_t rank, const char* stream) const {
  return folder_.path(std::to_string(rank) + "." + stream);
}

void RankedRun::become(std::uint32_t rank,
                       const std::vector<std::string>& arguments,
                       const Variables& variables) const {
  std::vector<std::string> words = {XPIPE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  dup2(open(file(rank, "out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(file(rank, "err").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
  execv(argv[0], argv.data());
  _exit(127);
}

void RankedRun::start(std::uint32_t rank,
                      const std::vector<std::string>& arguments,
                      const Variables& more) {
  Variables variables = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(world_)},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port_)}};
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    become(rank, arguments, variables);
  }
  running_[rank] = pid;
}

void RankedRun::launch(std::uint32_t ranks, const std::vector<std::string>& arguments) {
  // Whom the launcher leaves behind is this process's to wait for.
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  launcher_ = fork();
  REQUIRE(launcher_ >= 0);
  if (launcher_ == 0) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        become(rank, arguments,
               {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                {"OMPI_COMM_WORLD_SIZE", std::to_string(world_)},
                {"MASTER_ADDR", "127.0.0.1"},
                {"MASTER_PORT", std::to_string(port_)}});
      }
      if (pid < 0 || write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) {
        _exit(1);
      }
    }
    for (;;) {
      pause();
    }
  }
  close(ends[1]);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    pid_t pid = 0;
    REQUIRE(read(ends[0], &pid, sizeof(pid)) == sizeof(pid));
    running_[rank] = pid;
  }
  close(ends[0]);
}

void RankedRun::kill_launcher() {
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
  launcher_ = 0;
}

void RankedRun::start_all(const std::vector<std::string>& arguments, const Variables& more) {
  for (std::uint32_t rank = 0; rank < world_; ++rank) {
    start(rank, arguments, more);
  }
}

void RankedRun::signal(std::uint32_t rank, int number) {
  REQUIRE(running_.contains(rank));
  kill(running_[rank], number);
}

void RankedRun::stop_when(std::uint32_t rank, const std::function<bool()>& is_moment) {
  for (;;) {
    while (!is_moment()) {
      REQUIRE(!has_ended(rank));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    signal(rank, SIGSTOP);
    int status = 0;
    REQUIRE(waitpid(running_[rank], &status, WUNTRACED) == running_[rank]);
    REQUIRE(WIFSTOPPED(status));
    if (is_moment()) {
      return;
    }
    signal(rank, SIGCONT);
  }
}

bool RankedRun::has_ended(std::uint32_t rank) const {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(running_.at(rank)), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid != 0;
}

void RankedRun::wait_for(std::uint32_t rank, const std::string& marker) {
  while (read_all(file(rank, "out")).find(marker) == std::string::npos && !has_ended(rank)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void RankedRun::wait_for_port() const {
  while (port_is_free(port_)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Answer RankedRun::wait(std::uint32_t rank) {
  REQUIRE(running_.contains(rank));
  int status = 0;
  while (waitpid(running_[rank], &status, 0) < 0) {
    REQUIRE(errno == EINTR);
  }
  running_.erase(rank);
  Answer answer;
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  answer.out = read_all(file(rank, "out"));
  answer.err = read_all(file(rank, "err"));
  return answer;
}

std::map<std::uint32_t, Answer> RankedRun::wait_all() {
  std::map<std::uint32_t, Answer> answers;
  while (!running_.empty()) {
    const std::uint32_t rank = running_.begin()->first;
    answers[rank] = wait(rank);
  }
  return answers;
}

}  // namespace xpipe::app_test
