// What a user may type wrong: the status is 2, stdout stays empty, and stderr names the option, the
// value as it was typed and what was expected (field cases J1 to J3).
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

struct Slip {
  std::vector<std::string> arguments;
  std::vector<std::string> said;  ///< each must stand on stderr
};

const std::vector<std::string> kSimulate = {"simulate", "--policy", "gpipe", "--stages", "4"};

std::vector<std::string> simulate_with(std::vector<std::string> more) {
  more.insert(more.begin(), kSimulate.begin(), kSimulate.end());
  return more;
}

TEST_CASE("xpipe: a slip on the command line is refused with status 2 and named") {
  const std::vector<Slip> slips = {
      // misspelt or misplaced words
      {{}, {"subcommand"}},
      {{"simulat"}, {"simulat", "did you mean 'simulate'?"}},
      {simulate_with({"--micro-batchs", "8"}), {"--micro-batchs", "'--micro-batches'"}},
      {{"simulate", "--polcy", "gpipe"}, {"--polcy", "'--policy'"}},
      {simulate_with({"stray"}), {"stray"}},
      {{"simulate", "--policy", "gpip", "--stages", "2"}, {"gpip", "'gpipe'", "spectrain"}},
      // numbers
      {simulate_with({"--micro-batches", "0"}), {"--micro-batches", "'0'"}},
      {simulate_with({"--micro-batches", "-3"}), {"--micro-batches", "'-3'"}},
      {simulate_with({"--micro-batches", "2.5"}), {"--micro-batches", "'2.5'"}},
      {simulate_with({"--micro-batches", "4x"}), {"--micro-batches", "'4x'"}},
      {simulate_with({"--micro-batches", ""}), {"--micro-batches", "''"}},
      {simulate_with({"--micro-batches", "99999999999999999999"}), {"99999999999999999999"}},
      {simulate_with({"--micro-batches", "1,,2"}), {"--micro-batches", "'1,,2'"}},
      {simulate_with({"--mini-batches", "0"}), {"--mini-batches", "'0'"}},
      {simulate_with({"--latency-us", "0.0001"}), {"--latency-us", "'0.0001'", "3 decimals"}},
      {simulate_with({"--latency-us", "nan"}), {"--latency-us", "'nan'"}},
      {{"simulate", "--policy", "gpipe", "--stages"}, {"--stages"}},
      {simulate_with({"--stages", "2"}), {"--stages", "2 times", "'4', '2'"}},
      // what belongs together, or does not
      {{"simulate", "--stages", "2"}, {"--policy", "--schedule"}},
      {{"simulate", "--policy", "gpipe"}, {"--stages", "missing"}},
      {simulate_with({"--batch-size", "8"}), {"--batch-size", "--profile"}},
      {simulate_with({"--partition", "1,1"}), {"--partition"}},
      {simulate_with({"--micro-batches", "1,2", "--trace", "t.json"}), {"--trace", "2"}},
      {simulate_with({"--momentum", "0.9"}), {"--momentum", "sgd"}},
      // options of the policy
      {simulate_with({"--set", "rounding=floor"}), {"rounding", "no options"}},
      {simulate_with({"--set", "rounding"}), {"--set", "'rounding'", "KEY=VALUE"}},
      {{"simulate", "--policy", "xpipe", "--stages", "2", "--set", "predict=all"},
       {"predict", "'all'", "both, forward, none"}},
      {{"simulate", "--policy", "xpipe", "--stages", "2", "--set", "predict=both", "--set",
        "predict=none"},
       {"'predict'", "twice"}},
      // outputs
      {simulate_with({"--trace", "no/such/folder/t.json"}), {"no/such/folder"}},
      {simulate_with({"--trace", "."}), {"."}},
      {{"schedule", "--policy", "gpipe", "-o", "x.txt"}, {"x.txt", ".tasks"}},
      {{"compare", "one.json"}, {"RUN"}},
  };
  for (const Slip& slip : slips) {
    std::string line = "xpipe";
    for (const std::string& word : slip.arguments) {
      line += " " + (word.empty() ? "''" : word);
    }
    CAPTURE(line);
    const Answer answer = run_xpipe(slip.arguments);
    CHECK(answer.status == 2);
    CHECK(answer.out.empty());
    for (const std::string& part : slip.said) {
      CHECK_MESSAGE(answer.err.find(part) != std::string::npos, "missing '", part,
                    "' in: ", answer.err);
    }
  }
}

TEST_CASE("xpipe: a wrong --stages is not blamed on the micro-batches") {
  const Answer answer = run_xpipe({"simulate", "--policy", "gpipe", "--stages", "0"});
  CHECK(answer.status == 2);
  CHECK(answer.err.find("--stages") != std::string::npos);
  CHECK(answer.err.find("micro") == std::string::npos);
}

TEST_CASE("xpipe: several faults of one command line are named at once") {
  const Answer answer = run_xpipe({"simulate", "--policy", "gpip,xpip", "--stages", "2"});
  CHECK(answer.err.find("gpip'") != std::string::npos);
  CHECK(answer.err.find("xpip'") != std::string::npos);
}

TEST_CASE("xpipe: every command has help with an example") {
  for (const char* command :
       {"policies", "schedule", "check", "simulate", "plan", "profile", "train", "compare"}) {
    CAPTURE(command);
    const Answer answer = run_xpipe({command, "--help"});
    CHECK(answer.status == 0);
    CHECK(answer.err.empty());
#ifndef XPIPE_WITHOUT_TORCH
    CHECK(answer.out.find(std::string("Example: xpipe ") + command) != std::string::npos);
#endif
  }
  const Answer all = run_xpipe({"--help"});
  CHECK(all.status == 0);
  CHECK(all.out.find("simulate") != std::string::npos);
  CHECK(all.out.find("Exit status") != std::string::npos);
}

TEST_CASE("xpipe: an existing file stays as it was when the command fails") {
  const ScratchFolder folder;
  const std::string kept = folder.write("kept.json", "precious");
  CHECK(run_xpipe({"simulate", "--policy", "gpipe", "--stages", "2", "--micro-batches", "0",
                   "--trace", kept})
            .status == 2);
  CHECK(run_xpipe({"simulate", "--policy", "gpipe", "--stages", "2", "--profile",
                   folder.path("missing.json"), "--trace", kept})
            .status == 3);
  CHECK(read_all(kept) == "precious");
  CHECK(folder.list() == std::vector<std::string>{"kept.json"});
}

}  // namespace
}  // namespace xpipe::app_test
