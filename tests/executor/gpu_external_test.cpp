// GPUs in two processes, played by two backends on fake GPUs and two threads: what is told when,
// what waits for whom, and transfers whose two ends meet on the GPUs.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "executor/engine.h"
#include "executor/gpu_backend.h"
#include "executor/gpu_transport.h"
#include "ir/text.h"
#include "tests/executor/fake_gpu.h"
#include "tests/executor/half.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {
namespace {

using executor::GpuBackend;
using executor::GpuStream;
using executor::HandlerTable;
using ir::DeviceId;

/// Where the two ends of transfers meet: the nth send of a channel with its nth receive.
class Meetings {
 public:
  using Gate = std::shared_ptr<std::atomic<bool>>;

  /// The gate of one end, open once the other end is there.
  Gate arrive(DeviceId from, DeviceId to, bool sends, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Channel& channel = channels_[{from, to}];
    std::vector<End>& mine = sends ? channel.sends : channel.receives;
    const std::vector<End>& others = sends ? channel.receives : channel.sends;
    mine.push_back({std::make_shared<std::atomic<bool>>(aborted_), bytes});
    const std::size_t n = mine.size() - 1;
    if (n < others.size()) {
      wrong_ += mine[n].bytes == others[n].bytes ? 0 : 1;
      mine[n].gate->store(true);
      others[n].gate->store(true);
    }
    return mine[n].gate;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (auto& [devices, channel] : channels_) {
      for (const std::vector<End>* ends : {&channel.sends, &channel.receives}) {
        for (const End& end : *ends) {
          end.gate->store(true);
        }
      }
    }
  }

  /// Meetings of two that were not of one transfer.
  [[nodiscard]] int wrong() const { return wrong_; }

 private:
  struct End {
    Gate gate;
    std::size_t bytes = 0;
  };

  struct Channel {
    std::vector<End> sends;
    std::vector<End> receives;
  };

  std::mutex mutex_;
  std::map<std::pair<DeviceId, DeviceId>, Channel> channels_;
  bool aborted_ = false;
  int wrong_ = 0;
};

class FakeTransport final : public executor::GpuTransport {
 public:
  FakeTransport(FakeGpu& gpu, Meetings& meetings) : gpu_(gpu), meetings_(meetings) {}

  ir::Status send(DeviceId from,
                  DeviceId to,
                  const void* /*data*/,
                  std::size_t bytes,
                  GpuStream stream) override {
    gpu_.hold(stream, meetings_.arrive(from, to, true, bytes));
    return {};
  }

  ir::Status receive(
      DeviceId from, DeviceId to, void* /*data*/, std::size_t bytes, GpuStream stream) override {
    gpu_.hold(stream, meetings_.arrive(from, to, false, bytes));
    return {};
  }

  ir::Status check() override { return broken ? ir::Status(*broken) : ir::Status(); }

  void abort() override {
    ++aborts;
    meetings_.abort();
  }

  std::optional<ir::Error> broken;
  int aborts = 0;

 private:
  FakeGpu& gpu_;
  Meetings& meetings_;
};

/// One process with its GPUs.
struct Process {
  explicit Process(std::uint32_t rank, Meetings& meetings, std::chrono::nanoseconds time_out)
      : half(rank),
        gpu({.gpus = 2, .looks = 1}),
        transport(gpu, meetings),
        backend(gpu, {.device_map = {0, 1}, .time_out = time_out, .ahead = 3}) {
    backend.set_transport(&transport);
  }

  Half half;
  FakeGpu gpu;
  FakeTransport transport;
  GpuBackend backend;
};

class TwoProcesses {
 public:
  explicit TwoProcesses(std::chrono::nanoseconds time_out = std::chrono::seconds(60))
      : processes_{Process(0, meetings_, time_out), Process(1, meetings_, time_out)} {
    processes_[0].half.join(processes_[1].half);
    processes_[1].half.join(processes_[0].half);
  }

  using Answers = std::array<std::optional<ir::Result<ir::Timeline>>, 2>;

  Answers run(
      const ir::Schedule& schedule, Recorder& recorder, const Recorder::Extra& extra = [](TaskId) {
        return ir::Status();
      }) {
    Answers answers;
    const auto run_one = [&](std::size_t i) {
      Process& process = processes_[i];
      const HandlerTable handlers = recorder.handlers([&](TaskId id) -> ir::Status {
        const ir::Task& task = schedule.task(id);
        const ir::Lane& lane = schedule.lane(task.lane);
        if (lane.kind != ir::LaneKind::Compute && !process.half.is_local(lane.peer)) {
          const bool sends = lane.kind == ir::LaneKind::Send;
          // As many bytes as the message has a number, so that a mistaken meeting shows.
          const std::size_t bytes = ir::index_of(*ir::micro_batch_of(task)) + 1;
          const ir::Status moved =
              sends ? process.transport.send(lane.device, lane.peer, nullptr, bytes,
                                             process.backend.current())
                    : process.transport.receive(lane.peer, lane.device, nullptr, bytes,
                                                process.backend.current());
          if (!moved.ok()) {
            return moved;
          }
        }
        return extra(id);
      });
      answers[i] = executor::run(schedule, handlers, process.backend, &process.half);
      if (!answers[i]->ok()) {
        processes_[1 - i].half.stop(answers[i]->error());
      }
    };
    std::thread other([&] { run_one(1); });
    run_one(0);
    other.join();
    return answers;
  }

  [[nodiscard]] Process& process(std::size_t rank) { return processes_[rank]; }

  [[nodiscard]] const Meetings& meetings() const { return meetings_; }

 private:
  Meetings meetings_;
  std::array<Process, 2> processes_;
};

}  // namespace

TEST_CASE("gpu external: transfers that meet on the GPUs end, in every policy's order") {
  for (const scheduler::Policy& policy : all_policies()) {
    for (const std::uint32_t stages : {2U, 3U, 5U}) {
      CAPTURE(policy.name);
      CAPTURE(stages);
      const ir::Schedule schedule = compiled(policy, stages, 2, 3);
      TwoProcesses two;
      Recorder recorder(schedule);
      const auto answers = two.run(schedule, recorder);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        REQUIRE_MESSAGE(answers[rank]->ok(), answers[rank]->status().error().to_string());
        CHECK(two.process(rank).transport.aborts == 0);
        for (const ir::Span& span : answers[rank]->value().spans) {
          const ir::Lane& lane = schedule.lane(schedule.task(span.task).lane);
          if (lane.kind == ir::LaneKind::Receive && !two.process(rank).half.is_local(lane.peer)) {
            CHECK(span.start == span.end);  // the time of a transfer is its send's
          }
        }
      }
      CHECK(two.meetings().wrong() == 0);
      recorder.check_complete();
    }
  }
}

TEST_CASE("gpu external: a failure aborts transfers that nobody will meet, on both sides") {
  const ir::Schedule schedule = compiled("gpipe", 4, 2, 2);
  const TaskId culprit = find_task(schedule, "2F1[s0:v0]");
  TwoProcesses two;
  Recorder recorder(schedule);
  const auto answers = two.run(schedule, recorder, [&](TaskId task) -> ir::Status {
    return task == culprit ? ir::make_error(ir::ErrorKind::Runtime, "broken", "", "no luck")
                           : ir::Status();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(!answers[rank]->ok());
    CHECK(answers[rank]->error().to_string() == "2F1[s0:v0]: no luck [broken]");
    CHECK(two.process(rank).transport.aborts == 1);
  }
  recorder.check_stopped();
}

TEST_CASE("gpu external: what a connection reports ends the run") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  Meetings meetings;
  Process alone(0, meetings, std::chrono::seconds(60));
  Half deaf(1);
  alone.half.join(deaf);
  alone.transport.broken = ir::make_error(ir::ErrorKind::Runtime, "nccl", "", "the cable is out");
  const auto answer =
      executor::run(schedule, executor::no_op_handlers(), alone.backend, &alone.half);
  REQUIRE(!answer.ok());
  CHECK(answer.error().to_string() == "the cable is out [nccl]");
  CHECK(alone.transport.aborts == 1);
}

TEST_CASE("gpu external: a send that nobody meets ends in a time-out that names it") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  TwoProcesses two(std::chrono::milliseconds(30));
  Half deaf(1);
  two.process(0).half.join(deaf);
  Meetings meetings;
  const HandlerTable handlers = [&] {
    HandlerTable table = executor::no_op_handlers();
    table[static_cast<std::size_t>(ir::TaskKind::Send)] = [&](const ir::Schedule&, TaskId) {
      return two.process(0).transport.send(DeviceId{0}, DeviceId{1}, nullptr, 1,
                                           two.process(0).backend.current());
    };
    return table;
  }();
  const auto answer =
      executor::run(schedule, handlers, two.process(0).backend, &two.process(0).half);
  REQUIRE(!answer.ok());
  const std::string text = answer.error().to_string();
  CHECK_MESSAGE(text.find("0SEND_F0[1000B]: is being run by device 0") != std::string::npos, text);
  CHECK_MESSAGE(text.find("until 1SEND_B0[1000B] on device 1 is done, which rank 1 has not said") !=
                    std::string::npos,
                text);
  CHECK(two.process(0).transport.aborts == 1);
}

TEST_CASE("gpu external: without a transport a send is told when the GPU is done with it") {
  // The GPU hangs in the copy to the host: nobody may hear that it is there.
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);

  class Listening final : public executor::RemoteTasks {
   public:
    [[nodiscard]] bool is_local(DeviceId device) const override { return device == DeviceId{0}; }

    [[nodiscard]] std::string owner(DeviceId) const override { return "rank 1"; }

    void attach(const ir::Schedule&, Backend&) override {}

    ir::Status done(TaskId) override {
      ++told;
      return {};
    }

    void detach() override {}

    int told = 0;
  };

  for (const bool hangs : {true, false}) {
    FakeGpu gpu({.gpus = 1});
    GpuBackend backend(gpu, {.time_out = std::chrono::milliseconds(30)});
    Listening remote;
    HandlerTable table = executor::no_op_handlers();
    table[static_cast<std::size_t>(ir::TaskKind::Send)] = [&](const ir::Schedule&, TaskId) {
      gpu.hold(backend.current(), std::make_shared<std::atomic<bool>>(!hangs));
      return ir::Status();
    };
    const auto answer = executor::run(schedule, table, backend, &remote);
    CHECK(!answer.ok());  // rank 1 never sends anything back
    CHECK(remote.told == (hangs ? 0 : 1));
  }
}

TEST_CASE("gpu external: a lane that waits for another process holds up no other lane") {
  const ir::Schedule schedule = compiled("gpipe", 2, 4, 1);
  FakeGpu gpu({.gpus = 1});
  GpuBackend backend(gpu, {.time_out = std::chrono::milliseconds(30)});
  Half half(0);
  Half deaf(1);
  half.join(deaf);
  std::vector<std::string> launched;
  HandlerTable table = executor::no_op_handlers();
  for (executor::Handler& handler : table) {
    handler = [&](const ir::Schedule&, TaskId id) {
      launched.push_back(ir::to_text(schedule.task(id)));
      return ir::Status();
    };
  }
  CHECK(!executor::run(schedule, table, backend, &half).ok());
  std::ranges::sort(launched);
  CHECK(launched == std::vector<std::string>{"0F0[s0:v0]", "0F1[s0:v0]", "0F2[s0:v0]", "0F3[s0:v0]",
                                             "0SEND_F0[1000B]", "0SEND_F1[1000B]",
                                             "0SEND_F2[1000B]", "0SEND_F3[1000B]"});
}

}  // namespace xpipe::tests
