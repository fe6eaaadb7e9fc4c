// Several ranks run one schedule together: every task once and in order, its mail before it, and
// nothing lost at the end.
#include "executor/processes/processes.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "ir/text.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {

namespace {

using executor::Parcel;
using executor::Processes;
using ir::index_of;
using ir::TaskId;

/// Puts the task's text into every send's mail, `bytes` long, and notes what has come.
class TextMail final : public executor::Mail {
 public:
  TextMail(const ir::Schedule& schedule, std::size_t bytes)
      : schedule_(schedule), bytes_(bytes), came_(schedule.tasks.size()) {}

  [[nodiscard]] std::optional<Parcel> collect(TaskId task) override {
    return schedule_.task(task).kind() == ir::TaskKind::Send
               ? std::optional(executor::parcel_of(text(task)))
               : std::nullopt;
  }

  ir::Status deliver(TaskId task, Parcel parcel) override {
    if (schedule_.task(task).kind() == ir::TaskKind::Send) {
      came_[index_of(task)] = executor::bytes_of(parcel) == text(task) ? 1 : 2;
    }
    return {};
  }

  /// The mail of a remote send has come, whole.
  [[nodiscard]] bool has(TaskId task) const { return came_[index_of(task)] == 1; }

 private:
  [[nodiscard]] std::string text(TaskId task) const {
    std::string text = ir::to_text(schedule_.task(task)) + " ";
    while (text.size() < bytes_) {
      text += text;
    }
    return text;
  }

  const ir::Schedule& schedule_;
  const std::size_t bytes_;
  std::vector<std::atomic<int>> came_;
};

/// The send that a receive stands behind.
TaskId send_of(const ir::Schedule& schedule, TaskId receive) {
  for (const ir::Edge& edge : schedule.edges) {
    if (edge.to == receive && schedule.task(edge.from).kind() == ir::TaskKind::Send) {
      return edge.from;
    }
  }
  FAIL("a receive without its send");
  return receive;
}

/// Runs the schedule `rounds` times on `ranks` ranks and checks that each run was whole.
void check_runs(const ir::Schedule& schedule,
                std::uint32_t ranks,
                int rounds,
                std::size_t bytes,
                bool in_line = false) {
  std::deque<Recorder> recorders;
  for (int i = 0; i < rounds; ++i) {
    recorders.emplace_back(schedule);
  }
  run_ranks(ranks, [&](Processes& peers) {
    peers.set_devices(schedule.devices);
    auto pool = executor::CpuPool::create({.devices = schedule.devices});
    REQUIRE(pool.ok());
    executor::CpuBackend cpu(*pool.value());
    executor::InlineBackend one;
    executor::Backend& backend = in_line ? static_cast<executor::Backend&>(one) : cpu;
    for (Recorder& recorder : recorders) {
      TextMail mail(schedule, bytes);
      peers.set_mail(&mail);
      const auto handlers = recorder.handlers([&](TaskId task) -> ir::Status {
        if (schedule.task(task).kind() == ir::TaskKind::Receive) {
          const TaskId send = send_of(schedule, task);
          const ir::DeviceId device = schedule.lane(schedule.task(send).lane).device;
          if (!peers.is_local(device) && !mail.has(send)) {
            return ir::make_error(ir::ErrorKind::Internal, "no-mail", "", "no mail");
          }
        }
        return {};
      });
      const auto timeline = executor::run(schedule, handlers, backend, &peers);
      REQUIRE_MESSAGE(timeline.ok(), timeline.status().error().to_string());
      if (peers.rank() == 1) {  // the others are ahead by a run meanwhile
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    }
    const ir::Status finished = peers.finish();
    CHECK_MESSAGE(finished.ok(), finished.error().to_string());
  });
  for (const Recorder& recorder : recorders) {
    recorder.check_complete();
  }
}

}  // namespace

TEST_CASE("processes: two and four ranks run every policy's schedule, mail first, several times") {
  for (const scheduler::Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    const ir::Schedule schedule = compiled(policy, 4, 2, 3);
    for (const std::uint32_t ranks : {2U, 4U}) {
      check_runs(schedule, ranks, 3, 10);
    }
  }
}

TEST_CASE("processes: the inline device takes part, too") {
  check_runs(compiled("xpipe", 4, 2, 3), 4, 2, 10, true);
}

TEST_CASE("processes: mail of several pieces arrives whole") {
  check_runs(compiled("pipedream", 2, 1, 2), 2, 1, executor::kPieceBytes * 2 + 123);
}

TEST_CASE("processes: a message of more tensors than one frame has arrives whole, among others") {
  run_ranks(2, [](Processes& peers) {
    const std::uint32_t other = 1 - peers.rank();
    for (std::size_t count = 0; count < 30; ++count) {
      Parcel parcel;
      for (std::size_t i = 0; i < count; ++i) {
        parcel.tensors.push_back(
            executor::parcel_of(std::string(1 + 100 * i, static_cast<char>('a' + i)))
                .tensors.front());
      }
      REQUIRE(peers.send(other, parcel).ok());
    }
    for (std::size_t count = 0; count < 30; ++count) {
      const auto parcel = peers.receive(other);
      REQUIRE(parcel.ok());
      REQUIRE(parcel.value().tensors.size() == count);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(executor::bytes_of({.tensors = {parcel.value().tensors[i]}}) ==
              std::string(1 + 100 * i, static_cast<char>('a' + i)));
      }
    }
    CHECK(peers.finish().ok());
  });
}

TEST_CASE("processes: whoever is done first waits until its last message has arrived (K5)") {
  for (int round = 0; round < 20; ++round) {
    run_ranks(4, [round](Processes& peers) {
      if (peers.rank() == (round % 2 == 0 ? 3U : 0U)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      for (std::uint32_t to = 0; to < 4; ++to) {
        REQUIRE(peers.send(to, executor::parcel_of(std::string(100'000, 'x'))).ok());
      }
      if (peers.rank() == 1) {  // hears nothing of its mail before the end
        CHECK(peers.finish().ok());
        return;
      }
      for (std::uint32_t from = 0; from < 4; ++from) {
        const auto parcel = peers.receive(from);
        REQUIRE(parcel.ok());
        CHECK(executor::bytes_of(parcel.value()).size() == 100'000);
      }
      CHECK(peers.finish().ok());
    });
  }
}

TEST_CASE("processes: devices are dealt out in blocks") {
  run_ranks(2, [](Processes& peers) {
    peers.set_devices(6);
    CHECK(peers.rank_of(ir::DeviceId{0}) == 0);
    CHECK(peers.rank_of(ir::DeviceId{2}) == 0);
    CHECK(peers.rank_of(ir::DeviceId{3}) == 1);
    CHECK(peers.rank_of(ir::DeviceId{5}) == 1);
    CHECK(peers.owner(ir::DeviceId{5}) == "rank 1");
    CHECK(peers.finish().ok());
  });
}

}  // namespace xpipe::tests
