// What a run says when it does not move any more.
#include "executor/stall.h"

#include <doctest/doctest.h>

#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

using executor::LaneHead;

/// The schedule's heads, given by the texts of tasks.
class Heads {
 public:
  explicit Heads(const ir::Schedule& schedule) : schedule_(schedule), all(schedule.lanes.size()) {}

  void running(const char* task) { put(task, {.running = true}); }

  void ready(const char* task) { put(task, {}); }

  void waiting(const char* task, const char* event) {
    put(task, {.waits_for = find_task(schedule_, event)});
  }

 private:
  void put(const char* task, LaneHead head) {
    head.task = find_task(schedule_, task);
    all[ir::index_of(schedule_.task(head.task).lane)] = head;
  }

  const ir::Schedule& schedule_;

 public:
  std::vector<std::optional<LaneHead>> all;
};

constexpr ir::Nanos kSeconds = 1'000'000'000;

}  // namespace

TEST_CASE("stall: the task that runs comes first, then who waits for it and behind what") {
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 1);
  Heads heads(schedule);
  heads.running("0F0[s0:v0]");
  heads.waiting("0SEND_F0[1000B]", "0F0[s0:v0]");
  heads.waiting("1RECV_F0[1000B]", "0SEND_F0[1000B]");
  heads.waiting("1F0[s0:v0]", "1RECV_F1[1000B]");
  const ir::Error error = executor::describe_stall(schedule, heads.all, 300 * kSeconds);
  CHECK(error.kind == ir::ErrorKind::Runtime);
  CHECK(error.to_string() ==
        "0F0[s0:v0]: is being run by device 0 and does not end; raise the time-out if its work may "
        "take so long; nothing has moved for 300 s [time-out]\n"
        "1F0[s0:v0]: device 1 waits to start it, until 1RECV_F1[1000B] on device 1 is done, which "
        "stands behind 1RECV_F0[1000B] [time-out]\n"
        "0SEND_F0[1000B]: device 0 waits to start it, until 0F0[s0:v0] on device 0 is done "
        "[time-out]\n"
        "1RECV_F0[1000B]: device 1 waits to start it, until 0SEND_F0[1000B] on device 0 is done "
        "[time-out]");
}

TEST_CASE("stall: a ring over three lanes is shown from its smallest lane, whoever leads into it") {
  const ir::Schedule schedule = compiled("gpipe", 4, 2, 1);
  Heads heads(schedule);
  heads.waiting("0F0[s0:v0]", "2F0[s0:v0]");  // leads into the ring
  heads.waiting("1F0[s0:v0]", "3F0[s0:v0]");
  heads.waiting("2F0[s0:v0]", "1F1[s0:v0]");  // stands behind 1F0
  heads.waiting("3F0[s0:v0]", "2F0[s0:v0]");
  const ir::Error error = executor::describe_stall(schedule, heads.all, kSeconds / 2);
  REQUIRE(error.diagnostics.size() == 5);
  CHECK(error.diagnostics[0].where == "1F0[s0:v0]");
  CHECK(error.diagnostics[0].message ==
        "tasks wait for each other in a ring: 1F0[s0:v0] on device 1 waits for 3F0[s0:v0]; "
        "3F0[s0:v0] on device 3 waits for 2F0[s0:v0]; 2F0[s0:v0] on device 2 waits for 1F1[s0:v0] "
        "behind 1F0[s0:v0]; change the order of one of these lanes; nothing has moved for 0.5 s");
}

TEST_CASE("stall: a task that is ready on a busy device, and nothing at all, are said as such") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  Heads heads(schedule);
  heads.ready("0F0[s0:v0]");
  CHECK(executor::describe_stall(schedule, heads.all, kSeconds).to_string() ==
        "0F0[s0:v0]: device 0 waits to start it, but is busy; nothing has moved for 1 s "
        "[time-out]");
  const Heads none(schedule);
  CHECK(executor::describe_stall(schedule, none.all, kSeconds).to_string() ==
        "every lane is done; nothing has moved for 1 s [time-out]");
}

}  // namespace xpipe::tests
