// One suite for all backends: what a run that fails or is stopped must show. The first cause is
// reported with the task's text form, everything has stopped, no task starts after a predecessor
// that failed, and the backend runs the next schedule as if nothing had happened.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "executor/stop_state.h"
#include "ir/task.h"
#include "ir/text.h"
#include "tests/executor/backends.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

enum class Way : std::uint8_t { Returns, Throws, ThrowsAnInt };

ir::Status fail(Way way) {
  switch (way) {
    case Way::Returns:
      return ir::make_error(ir::ErrorKind::Runtime, "nan-loss", "sample 7", "the loss is NaN");
    case Way::Throws:
      throw std::runtime_error("out of memory: wanted 3 GiB");
    case Way::ThrowsAnInt:
      throw 42;
  }
  return {};
}

ir::Diagnostic expected(Way way, const std::string& task) {
  switch (way) {
    case Way::Returns:
      return {"nan-loss", task + ", sample 7", "the loss is NaN"};
    case Way::Throws:
      return {"handler-failed", task, "out of memory: wanted 3 GiB"};
    case Way::ThrowsAnInt:
      return {"handler-failed", task, "threw something that is no std::exception"};
  }
  return {};
}

/// The last task of each kind, so that there is something before it and other lanes are busy.
std::vector<ir::TaskId> last_of_each_kind(const ir::Schedule& schedule) {
  std::vector<std::optional<ir::TaskId>> last(ir::kTaskKinds);
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    last[static_cast<std::size_t>(schedule.tasks[i].kind())] = ir::TaskId{i};
  }
  std::vector<ir::TaskId> tasks;
  for (const auto& task : last) {
    if (task) {
      tasks.push_back(*task);
    }
  }
  return tasks;
}

void check_failure(const ir::Schedule& schedule, const BackendCase& with) {
  BackendSetup setup = with.make(schedule);
  for (const ir::TaskId culprit : last_of_each_kind(schedule)) {
    const std::string text = ir::to_text(schedule.task(culprit));
    for (const Way way : {Way::Returns, Way::Throws, Way::ThrowsAnInt}) {
      INFO("failing ", text);
      Recorder recorder(schedule);
      const auto result = executor::run(schedule, recorder.handlers([&](ir::TaskId t) {
        return t == culprit ? fail(way) : ir::Status();
      }),
                                        *setup.backend);
      REQUIRE(!result.ok());
      CHECK(result.error().kind == ir::ErrorKind::Runtime);
      REQUIRE(result.error().diagnostics.size() == 1);
      CHECK(result.error().diagnostics[0] == expected(way, text));
      CHECK(recorder.started(culprit));
      CHECK(!recorder.ended(culprit));
      recorder.check_stopped();
      for (const ir::Span& span : setup.backend->timeline().spans) {
        CHECK(recorder.ended(span.task));
      }
    }
    Recorder again(schedule);
    CHECK(executor::run(schedule, again.handlers(), *setup.backend).ok());
    again.check_complete();
  }
}

const ir::Error kInterrupted =
    ir::make_error(ir::ErrorKind::Interrupted, "interrupted", "", "stopped by SIGINT");

}  // namespace

TEST_CASE("conformance: a failure at any kind of task stops the run, names the task and drains") {
  const ir::Schedule every_kind = schedule_of_every_kind();
  const ir::Schedule deep = compiled("xpipe", 4, 2, 3);
  CHECK(last_of_each_kind(every_kind).size() == ir::kTaskKinds);
  for_each_backend("failure", [&](const BackendCase& with) {
    check_failure(every_kind, with);
    check_failure(deep, with);
  });
}

TEST_CASE("conformance: when every task fails, the first one that ran is reported") {
  const ir::Schedule schedule = compiled("gpipe", 3, 2, 1);
  for_each_backend("all fail", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    Recorder recorder(schedule);
    const auto result = executor::run(
        schedule, recorder.handlers([](ir::TaskId) { return fail(Way::Throws); }), *setup.backend);
    REQUIRE(!result.ok());
    CHECK(result.error().diagnostics[0] == expected(Way::Throws, "0F0[s0:v0]"));
    CHECK(recorder.started_count() == 1);
  });
}

TEST_CASE("conformance: a failure on the only device ends a run of one stage") {
  const ir::Schedule schedule = compiled("gpipe", 1, 1, 2);
  for_each_backend("failure, one stage",
                   [&schedule](const BackendCase& with) { check_failure(schedule, with); });
}

TEST_CASE("conformance: stop() from another thread ends a run, and later runs of that backend") {
  const ir::Schedule schedule = compiled("gpipe", 4, 4, 2);
  const ir::TaskId at = find_task(schedule, "1F2[s0:v0]");
  for_each_backend("stop", [&](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    Recorder recorder(schedule);
    const auto result = executor::run(schedule, recorder.handlers([&](ir::TaskId task) {
      if (task == at) {
        std::thread([&setup] { setup.backend->stop(kInterrupted); }).join();
      }
      return ir::Status();
    }),
                                      *setup.backend);
    REQUIRE(!result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Interrupted);
    CHECK(result.error().diagnostics == kInterrupted.diagnostics);
    recorder.check_stopped();
    CHECK(recorder.ended(at));  // what runs may end
    CHECK(!recorder.started(find_task(schedule, "1F3[s0:v0]")));
    CHECK(!recorder.started(find_task(schedule, "2RECV_F2[1000B]")));

    Recorder after(schedule);
    const auto refused = executor::run(schedule, after.handlers(), *setup.backend);
    REQUIRE(!refused.ok());
    CHECK(refused.error().diagnostics == kInterrupted.diagnostics);
    CHECK(after.started_count() == 0);

    Recorder fresh(schedule);
    CHECK(executor::run(schedule, fresh.handlers(), *with.make_another(setup, schedule)).ok());
    fresh.check_complete();
  });
}

TEST_CASE("conformance: stop() before the first run is not lost") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  for_each_backend("stop before", [&schedule](const BackendCase& with) {
    BackendSetup setup = with.make(schedule);
    setup.backend->stop(kInterrupted);
    Recorder recorder(schedule);
    const auto result = executor::run(schedule, recorder.handlers(), *setup.backend);
    REQUIRE(!result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Interrupted);
    CHECK(recorder.started_count() == 0);
  });
}

TEST_CASE("stop state: the first failure wins, a new run forgets it and never a stop") {
  const auto code = [](const executor::StopState& state) {
    return state.status().ok() ? "ok" : state.status().error().diagnostics[0].code;
  };
  executor::StopState state;
  state.begin_run();
  CHECK(!state.stopping());
  state.fail(ir::make_error(ir::ErrorKind::Runtime, "first", "", ""));
  state.fail(ir::make_error(ir::ErrorKind::Runtime, "second", "", ""));
  CHECK(state.stopping());
  CHECK(code(state) == "first");
  state.begin_run();
  CHECK(!state.stopping());
  CHECK(code(state) == "ok");
  state.fail(ir::make_error(ir::ErrorKind::Runtime, "third", "", ""));
  state.stop(kInterrupted);
  CHECK(code(state) == "third");
  state.begin_run();
  CHECK(state.stopping());
  CHECK(code(state) == "interrupted");
}

}  // namespace xpipe::tests
