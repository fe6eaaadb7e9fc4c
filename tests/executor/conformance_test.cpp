// One suite for all backends: what a run that goes well must show.
#include <array>
#include <atomic>
#include <latch>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "ir/task.h"
#include "ir/text.h"
#include "tests/executor/backends.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

using ir::index_of;

/// Runs `schedule`, expects success, and checks the record and the shape of the timeline.
ir::Timeline run_and_check(const ir::Schedule& schedule, executor::Backend& backend) {
  Recorder recorder(schedule);
  const auto timeline = executor::run(schedule, recorder.handlers(), backend);
  REQUIRE_MESSAGE(timeline.ok(), timeline.error().to_string());
  recorder.check_complete();
  REQUIRE(timeline.value().spans.size() == schedule.tasks.size());
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    CHECK(timeline.value().spans[i].task == ir::TaskId{i});
    CHECK(timeline.value().spans[i].start >= 0);
    CHECK(timeline.value().spans[i].start <= timeline.value().spans[i].end);
  }
  return timeline.value();
}

void check_spans_in_order(const ir::Schedule& schedule, const ir::Timeline& timeline) {
  const auto span = [&timeline](ir::TaskId task) { return timeline.spans[index_of(task)]; };
  for (const ir::Lane& lane : schedule.lanes) {
    for (std::size_t i = 1; i < lane.order.size(); ++i) {
      CHECK(span(lane.order[i - 1]).end <= span(lane.order[i]).start);
    }
  }
  for (const ir::Edge& edge : schedule.edges) {
    CHECK(span(edge.from).end <= span(edge.to).start);
  }
}

}  // namespace

TEST_CASE("conformance: every task runs once, after its lane and its edges") {
  for_each_backend("order", [](const BackendCase& with) {
    for (const scheduler::Policy& policy : all_policies()) {
      for (const std::uint32_t stages : {1U, 2U, 3U, 5U}) {
        for (const std::uint32_t micro_batches : {1U, 2U, 4U}) {
          const ir::Schedule schedule = compiled(policy, stages, micro_batches, 3);
          BackendSetup setup = with.make(schedule);
          check_spans_in_order(schedule, run_and_check(schedule, *setup.backend));
        }
      }
    }
  });
}

TEST_CASE("conformance: a task of every kind reaches its own handler") {
  const ir::Schedule schedule = schedule_of_every_kind();
  for_each_backend("every kind", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    std::array<std::atomic<int>, ir::kTaskKinds> calls{};
    executor::HandlerTable handlers;
    for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
      handlers[kind] = [&calls, kind](const ir::Schedule& s, ir::TaskId task) {
        if (static_cast<std::size_t>(s.task(task).kind()) == kind) {
          ++calls[kind];
        }
        return ir::Status();
      };
    }
    REQUIRE(executor::run(schedule, handlers, *setup.backend).ok());
    std::array<int, ir::kTaskKinds> expected{};
    for (const ir::Task& task : schedule.tasks) {
      ++expected[static_cast<std::size_t>(task.kind())];
    }
    for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
      CHECK(expected[kind] > 0);
      CHECK(calls[kind] == expected[kind]);
    }
  });
}

TEST_CASE("conformance: what a task computes from its predecessors is the same on every backend") {
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 4);
  std::vector<std::uint64_t> expected;
  for_each_backend("values", [&](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    Recorder recorder(schedule);
    REQUIRE(executor::run(schedule, recorder.handlers(), *setup.backend).ok());
    if (expected.empty()) {
      expected = recorder.values();
    }
    CHECK(recorder.values() == expected);
  });
}

TEST_CASE("conformance: a backend runs several schedules one after another") {
  const ir::Schedule large = compiled("pipedream", 4, 1, 5);
  const ir::Schedule small = compiled("gpipe", 2, 3, 1);
  for_each_backend("several runs", [&](const BackendCase& with) {
    BackendSetup setup = with.make(large);
    for (int round = 0; round < 3; ++round) {
      run_and_check(large, *setup.backend);
      run_and_check(small, *setup.backend);
    }
    run_and_check(large, *with.make_another(setup, large));
  });
}

TEST_CASE("conformance: a schedule without tasks is done at once") {
  ir::Schedule empty;
  empty.devices = 2;
  for_each_backend("no tasks", [&empty](const BackendCase& with) {
    BackendSetup setup = with.make(empty);
    const auto timeline = executor::run(empty, executor::no_op_handlers(), *setup.backend);
    REQUIRE(timeline.ok());
    CHECK(timeline.value().spans.empty());
  });
}

TEST_CASE("conformance: spans are measured where the backend has a clock") {
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 2);
  for_each_backend("spans are measured", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    CHECK(run_and_check(schedule, *setup.backend).measured);
  });
}

TEST_CASE("conformance: devices work at the same time") {
  // 0F1 and 1F0 end only when both have begun.
  const ir::Schedule schedule = compiled("gpipe", 2, 2, 1);
  const ir::TaskId on_0 = find_task(schedule, "0F1[s0:v0]");
  const ir::TaskId on_1 = find_task(schedule, "1F0[s0:v0]");
  for_each_backend("devices work at the same time", [&](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    std::latch both(2);
    Recorder recorder(schedule);
    const auto handlers = recorder.handlers([&](ir::TaskId task) {
      if (task == on_0 || task == on_1) {
        both.arrive_and_wait();
      }
      return ir::Status();
    });
    REQUIRE(executor::run(schedule, handlers, *setup.backend).ok());
    recorder.check_complete();
  });
}

TEST_CASE("conformance: a kind without a handler is refused before anything runs") {
  const ir::Schedule schedule = schedule_of_every_kind();
  for_each_backend("no handler", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    Recorder recorder(schedule);
    executor::HandlerTable handlers = recorder.handlers();
    handlers[static_cast<std::size_t>(ir::TaskKind::Predict)] = nullptr;
    handlers[static_cast<std::size_t>(ir::TaskKind::Forward)] = nullptr;
    const auto refused = executor::run(schedule, handlers, *setup.backend);
    REQUIRE(!refused.ok());
    CHECK(refused.error().kind == ir::ErrorKind::Usage);
    REQUIRE(refused.error().diagnostics.size() == 2);
    CHECK(refused.error().diagnostics[0].code == "no-handler");
    CHECK(refused.error().diagnostics[0].message.find("'forward', of which the schedule has 2") !=
          std::string::npos);
    CHECK(refused.error().diagnostics[1].where == "1PREDICT_F0[s0:v1>s1+1]");
    CHECK(recorder.started_count() == 0);
    run_and_check(schedule, *setup.backend);
  });
}

TEST_CASE("conformance: a kind that the schedule lacks needs no handler") {
  const ir::Schedule schedule = compiled("gpipe", 1, 2, 1);
  for_each_backend("no handler needed", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    executor::HandlerTable handlers = executor::no_op_handlers();
    handlers[static_cast<std::size_t>(ir::TaskKind::Predict)] = nullptr;
    CHECK(executor::run(schedule, handlers, *setup.backend).ok());
  });
}

}  // namespace xpipe::tests
