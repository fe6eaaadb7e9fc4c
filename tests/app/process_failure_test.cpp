// However a run of several processes fails, all of them end, with the first cause, a status and
// nothing left behind: no process, no port, no half-written file.
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_ranks.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Answers = std::map<std::uint32_t, Answer>;

/// Three stages; far more epochs than a test waits for.
std::vector<std::string> train(const ScratchFolder& folder,
                               const std::vector<std::string>& more = {},
                               const char* timeout_s = "60") {
  std::vector<std::string> command = {"train",
                                      "--policy",
                                      "xpipe",
                                      "--model",
                                      "lenet5",
                                      "--data",
                                      in_tree("examples/data/digits"),
                                      "--stages",
                                      "3",
                                      "--batch-size",
                                      "500",
                                      "--micro-batches",
                                      "4",
                                      "--epochs",
                                      "1000",
                                      "--timeout-s",
                                      timeout_s,
                                      "--trace",
                                      folder.path("trace.json"),
                                      "--metrics",
                                      folder.path("metrics")};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

bool says(const Answer& answer, const std::string& text) {
  return answer.err.find(text) != std::string::npos;
}

/// Every rank of `answers` but `except` ended with `status` and said all of `texts` first.
void check_ends(const Answers& answers,
                int status,
                const std::vector<std::string>& texts,
                std::optional<std::uint32_t> except = std::nullopt) {
  for (const auto& [rank, answer] : answers) {
    if (rank == except) {
      continue;
    }
    CAPTURE(rank);
    CHECK_MESSAGE(answer.status == status, answer.err);
    for (const std::string& text : texts) {
      CHECK_MESSAGE(says(answer, text), answer.err);
    }
    CHECK_MESSAGE(answer.err.starts_with("xpipe: rank "), answer.err);
  }
}

/// Three ranks, one of which has the fault.
Answers run_with_fault(const ScratchFolder& folder,
                       const std::string& fault,
                       const char* timeout_s = "60") {
  RankedRun run(3);
  run.start_all(train(folder, {}, timeout_s), {{"XPIPE_TEST_FAULT", fault}});
  Answers answers = run.wait_all();
  CHECK(port_is_free(run.port()));
  CHECK(folder.list().empty());
  return answers;
}

}  // namespace

TEST_CASE("processes: a layer that throws is named with its rank, stage and task by all") {
  const ScratchFolder folder;
  check_ends(run_with_fault(folder, "1 1F9 throw"), 5,
             {"rank 1, stage 1, task 1F9[", "a fault was asked for"});
}

TEST_CASE("processes: no memory on one stage ends all, with its rank and what could not be had") {
  const ScratchFolder folder;
  // Whatever asks for memory next: the task, or a message that comes in for one.
  check_ends(run_with_fault(folder, "2 2F9 memory"), 5, {"xpipe: rank 2, ", "alloc"});
}

TEST_CASE("processes: a rank that is killed, or exits, is named by the others (K1)") {
  for (const auto& [action, status] : {std::pair{"kill", 128 + SIGKILL}, std::pair{"exit=7", 7}}) {
    CAPTURE(action);
    const ScratchFolder folder;
    const Answers answers = run_with_fault(folder, std::string("1 1F9 ") + action);
    CHECK(answers.at(1).status == status);
    check_ends(answers, 5, {"peer rank 1", "rank 1 is gone"}, 1);
  }
}

TEST_CASE("processes: rank 0, which holds the meeting place, may be the one that is killed") {
  const ScratchFolder folder;
  const Answers answers = run_with_fault(folder, "0 0F9 kill");
  check_ends(answers, 5, {"peer rank 0", "rank 0 is gone"}, 0);
}

TEST_CASE("processes: a rank that is stopped is found by its silence (K1)") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start_all(train(folder, {}, "4"), {{"XPIPE_TEST_FAULT", "1 1F9 stop"}});
  Answers answers;
  answers[0] = run.wait(0);
  answers[2] = run.wait(2);
  check_ends(answers, 5,
             {"peer rank 1", "nothing has been heard of rank 1 for 3 s", "--timeout-s"});
  run.signal(1, SIGCONT);  // and when it goes on, it ends as they did
  const Answer late = run.wait(1);
  CHECK_MESSAGE(late.status == 5, late.err);
  CHECK(port_is_free(run.port()));
  CHECK(folder.list().empty());
}

TEST_CASE("processes: a task that hangs, and a send that never goes out, end in a time-out") {
  for (const char* fault : {"1 1B3 hang", "0 0SEND_F9 hang"}) {
    CAPTURE(fault);
    const ScratchFolder folder;
    const Answers answers = run_with_fault(folder, fault, "3");
    for (const auto& [rank, answer] : answers) {
      CHECK_MESSAGE(answer.status == 5, answer.err);
      CHECK_MESSAGE(says(answer, "time-out"), answer.err);
      CHECK_MESSAGE(says(answer, "rank "), answer.err);
    }
  }
}

TEST_CASE("processes: a signal to one rank ends all of them, with its status (J4)") {
  for (const auto& [action, status] : {std::pair{"int", 130}, std::pair{"term", 143}}) {
    CAPTURE(action);
    const ScratchFolder folder;
    check_ends(run_with_fault(folder, std::string("2 2F9 ") + action), status,
               {"rank 2", "stopped by a signal"});
  }
}

TEST_CASE("processes: Ctrl-C to all ranks ends all of them, twice at once (J4)") {
  for (const bool twice : {false, true}) {
    const ScratchFolder folder;
    RankedRun run(3);
    run.start_all(train(folder));
    run.wait_for(0, "samples/s\n");
    for (int times = 0; times < (twice ? 2 : 1); ++times) {
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        run.signal(rank, SIGINT);
      }
    }
    for (const auto& [rank, answer] : run.wait_all()) {
      CAPTURE(rank);
      CHECK_MESSAGE(answer.status == 130, answer.err);
    }
    CHECK(port_is_free(run.port()));
    CHECK(folder.list().empty());
  }
}

// mpirun itself ends at once on Ctrl-C twice within a second, and leaves its processes behind.
TEST_CASE("processes: ranks whose launcher is gone end, too, before and after they have met") {
  for (const bool meet : {true, false}) {
    CAPTURE(meet);
    const ScratchFolder folder;
    RankedRun run(3);
    run.launch(meet ? 3 : 1, train(folder));
    meet ? run.wait_for(0, "samples/s\n") : run.wait_for_port();
    run.kill_launcher();
    check_ends(run.wait_all(), 5, {"mpirun, which had started this rank", "launcher-gone"});
    CHECK(port_is_free(run.port()));
    CHECK(folder.list().empty());
  }
}

TEST_CASE("processes: rank 0 alone can be interrupted while it waits for the others (J4)") {
  for (const auto& [signal, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const ScratchFolder folder;
    RankedRun run(3);
    run.start(0, train(folder));
    run.wait_for_port();
    run.signal(0, signal);
    const Answer answer = run.wait(0);
    CHECK_MESSAGE(answer.status == status, answer.err);
    CHECK(port_is_free(run.port()));
    CHECK(folder.list().empty());
  }
}

TEST_CASE("processes: a rank that never arrives is named by those that did") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start(0, train(folder, {}, "3"));
  run.start(2, train(folder, {}, "3"));
  check_ends(run.wait_all(), 5, {"waited 3 s for rank 1 of 3 to join at 127.0.0.1:"});
  CHECK(folder.list().empty());
}

TEST_CASE("processes: without rank 0 there is no meeting place, and its address is said") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start(1, train(folder, {}, "2"));
  const Answer answer = run.wait(1);
  CHECK(answer.status == 5);
  CHECK_MESSAGE(says(answer, "127.0.0.1:" + std::to_string(run.port())), answer.err);
}

TEST_CASE("processes: ranks that were told of different worlds end with both numbers") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start(0, train(folder));
  run.start(2,
            {"train", "--policy", "xpipe", "--data", in_tree("examples/data/digits"), "--stages",
             "6", "--partition", "1,1,1,1,1,1", "--batch-size", "500", "--micro-batches", "4"},
            {{"WORLD_SIZE", "6"}});
  Answers answers;
  answers[0] = run.wait(0);
  answers[2] = run.wait(2);
  for (const auto& [rank, answer] : answers) {
    CHECK_MESSAGE(answer.status == 5, answer.err);
    CHECK_MESSAGE((says(answer, "3") && says(answer, "6")), answer.err);
    CHECK_MESSAGE(says(answer, "world-size"), answer.err);
  }
}

TEST_CASE("processes: a port that another program holds is named (K2)") {
  const ScratchFolder folder;
  const TakenPort taken;
  RankedRun run(3, taken.port());
  run.start(0, train(folder, {}, "5"));
  const Answer answer = run.wait(0);
  CHECK(answer.status == 5);
  CHECK_MESSAGE(says(answer, "port " + std::to_string(taken.port()) + ": is in use"), answer.err);
}

TEST_CASE("processes: a run that was left over at the port does not take in a new one's ranks") {
  const ScratchFolder folder;
  RankedRun left_over(3);
  left_over.start(0, train(folder));
  left_over.start(1, train(folder));
  left_over.wait_for_port();
  RankedRun run(3, left_over.port());
  run.start(0, train(folder));
  const Answer first = run.wait(0);
  CHECK(first.status == 5);
  CHECK_MESSAGE(says(first, "in use"), first.err);
  run.start(1, train(folder));
  const Answer second = run.wait(1);
  CHECK(second.status == 5);
  CHECK_MESSAGE(says(second, "as rank 1"), second.err);
}

TEST_CASE("processes: ranks that hold different settings end with what differs, before step 1") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start(0, train(folder, {"--lr", "0.001"}));
  run.start(1, train(folder, {"--lr", "0.01", "--seed", "5"}));
  run.start(2, train(folder, {"--lr", "0.001"}));
  check_ends(run.wait_all(), 5,
             {"--lr: is not the same everywhere: 0.001 on ranks 0, 2; 0.01 on rank 1",
              "--seed: is not the same everywhere: 0 on ranks 0, 2; 5 on rank 1"});
  CHECK(folder.list().empty());
}

TEST_CASE("processes: data that one rank lacks end all of them with its status") {
  const ScratchFolder folder;
  RankedRun run(3);
  run.start(0, train(folder));
  run.start(2, train(folder));
  run.start(1, {"train", "--policy", "xpipe", "--data", folder.path("nothing"), "--stages", "3",
                "--batch-size", "500", "--micro-batches", "4"});
  check_ends(run.wait_all(), 3, {"rank 1", "nothing"});
}

}  // namespace xpipe::app_test
