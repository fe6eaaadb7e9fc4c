#include "tests/app/run_xpipe.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xpipe::app_test {

namespace {

/// A running xpipe with its two streams.
struct Child {
  pid_t pid = -1;
  int out = -1;
  int err = -1;
};

Child start(const std::vector<std::string>& arguments) {
  int out[2];
  int err[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(pipe2(err, O_CLOEXEC) == 0);
  std::vector<std::string> words = {XPIPE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  return {pid, out[0], err[0]};
}

/// Reads both streams until they end or `enough()`, which is asked after whatever comes and, where
/// `poll_ms` is given, that often besides.
template <typename Enough>
void read_until(const Child& child, Answer& answer, int poll_ms, Enough&& enough) {
  pollfd streams[2] = {{child.out, POLLIN, 0}, {child.err, POLLIN, 0}};
  std::string* texts[2] = {&answer.out, &answer.err};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (enough()) {
      return;
    }
    REQUIRE(poll(streams, 2, poll_ms) >= 0);
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) {
        continue;
      }
      char buffer[4096];
      const ssize_t count = read(streams[i].fd, buffer, sizeof(buffer));
      if (count <= 0) {
        streams[i].fd = -1;
      } else {
        texts[i]->append(buffer, static_cast<std::size_t>(count));
      }
    }
  }
}

void finish(const Child& child, Answer& answer) {
  read_until(child, answer, -1, [] { return false; });
  close(child.out);
  close(child.err);
  int status = 0;
  REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Answer run_xpipe(const std::vector<std::string>& arguments) {
  Answer answer;
  finish(start(arguments), answer);
  return answer;
}

nlohmann::json simulated_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  arguments.emplace_back("--json");
  const Answer answer = run_xpipe(arguments);
  REQUIRE_MESSAGE(answer.status == 0, answer.err);
  nlohmann::json document = nlohmann::json::parse(answer.out);
  REQUIRE(document["runs"].size() == 1);
  return document["runs"][0];
}

Answer run_xpipe_and_signal(const std::vector<std::string>& arguments,
                            const std::string& marker,
                            int signal) {
  Answer answer;
  const Child child = start(arguments);
  read_until(child, answer, -1, [&] { return answer.out.find(marker) != std::string::npos; });
  kill(child.pid, signal);
  finish(child, answer);
  return answer;
}

Answer run_xpipe_and_signal_at(const std::vector<std::string>& arguments,
                               const std::string& path,
                               std::size_t lines,
                               int signal) {
  Answer answer;
  const Child child = start(arguments);
  read_until(child, answer, 1, [&] {
    const std::string text = read_all(path);
    return static_cast<std::size_t>(std::ranges::count(text, '\n')) >= lines;
  });
  kill(child.pid, signal);
  finish(child, answer);
  return answer;
}

std::string read_all(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<nlohmann::json> timeless(const std::string& path) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_all(path));
  for (std::string line; std::getline(lines, line);) {
    records.push_back(nlohmann::json::parse(line));
    records.back().erase("samples_per_s");
  }
  return records;
}

std::string in_tree(const std::string& path) {
  return std::string(XPIPE_SOURCE_DIR) + "/" + path;
}

}  // namespace xpipe::app_test
