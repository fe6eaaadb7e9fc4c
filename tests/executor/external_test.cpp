// A schedule that two processes share, played by two backends and two threads in this one: each
// runs its own devices, and what the other runs are external events.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/cpu/emulated_backend.h"
#include "executor/engine.h"
#include "executor/gpu_backend.h"
#include "executor/inline_backend.h"
#include "executor/virtual_backend.h"
#include "ir/text.h"
#include "scheduler/compile.h"
#include "tests/executor/fake_gpu.h"
#include "tests/executor/half.h"
#include "tests/executor/recorder.h"
#include "tests/executor/schedules.h"

namespace xpipe::tests {

namespace {

using executor::Backend;
using executor::Event;
using ir::TaskId;

enum class Kind : std::uint8_t { Inline, Cpu, Gpu };

/// Both halves with their backends; kept over several runs.
class Halves {
 public:
  Halves(Kind kind, std::uint32_t devices) {
    for (Half& half : halves_) {
      half.join(&half == halves_.data() ? halves_[1] : halves_[0]);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (kind == Kind::Inline) {
        backends_[i] = std::make_unique<executor::InlineBackend>();
      } else if (kind == Kind::Gpu) {
        gpus_[i] = std::make_unique<FakeGpu>(FakeGpu::Options{.gpus = 2, .looks = 2});
        backends_[i] = std::make_unique<executor::GpuBackend>(
            *gpus_[i], executor::GpuBackendOptions{.device_map = {0, 1}, .ahead = 3});
      } else {
        auto pool = executor::CpuPool::create({.devices = devices});
        REQUIRE(pool.ok());
        pools_[i] = std::move(pool).value();
        backends_[i] = std::make_unique<executor::CpuBackend>(*pools_[i]);
      }
    }
  }

  using Answers = std::array<std::optional<ir::Result<ir::Timeline>>, 2>;

  Answers run(const ir::Schedule& schedule, const executor::HandlerTable& handlers) {
    Answers answers;
    const auto run_one = [&](std::size_t i) {
      answers[i] = executor::run(schedule, handlers, *backends_[i], &halves_[i]);
      if (!answers[i]->ok()) {
        halves_[1 - i].stop(answers[i]->error());
      }
    };
    std::thread other([&] { run_one(1); });
    run_one(0);
    other.join();
    return answers;
  }

 private:
  std::array<Half, 2> halves_{Half(0), Half(1)};
  std::array<std::unique_ptr<executor::CpuPool>, 2> pools_;
  std::array<std::unique_ptr<FakeGpu>, 2> gpus_;
  std::array<std::unique_ptr<Backend>, 2> backends_;
};

void check_shared(const ir::Schedule& schedule, Halves& halves) {
  Recorder recorder(schedule);
  const auto answers = halves.run(schedule, recorder.handlers());
  std::vector<int> spans(schedule.tasks.size());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE_MESSAGE(answers[rank]->ok(), answers[rank]->status().error().to_string());
    for (const ir::Span& span : answers[rank]->value().spans) {
      ++spans[ir::index_of(span.task)];
      CHECK(ir::index_of(schedule.lane(schedule.task(span.task).lane).device) % 2 == rank);
    }
  }
  CHECK(spans == std::vector<int>(schedule.tasks.size(), 1));
  recorder.check_complete();
}

constexpr std::array kKinds{Kind::Inline, Kind::Cpu, Kind::Gpu};

}  // namespace

TEST_CASE("external: two processes together run every task once, after its lane and its edges") {
  for (const Kind kind : kKinds) {
    for (const scheduler::Policy& policy : all_policies()) {
      for (const std::uint32_t stages : {2U, 3U, 5U}) {
        CAPTURE(policy.name);
        CAPTURE(stages);
        const ir::Schedule schedule = compiled(policy, stages, 2, 3);
        Halves halves(kind, schedule.devices);
        check_shared(schedule, halves);
        check_shared(schedule, halves);  // and once more with the same backends
      }
    }
  }
}

TEST_CASE("external: edges other than a message's wait for the other process, too") {
  // A blocking send holds its stage's compute until the other side has received.
  const ir::Schedule schedule = [] {
    const auto policy = std::ranges::find(all_policies(), "gpipe", &scheduler::Policy::name);
    REQUIRE(policy != all_policies().end());
    auto compiled = scheduler::compile(
        *policy, {.stages = 3, .micro_batches = 2, .mini_batches = 2, .options = {}},
        scheduler::chain_of(3), {.sends = scheduler::Sends::Blocking});
    REQUIRE(compiled.ok());
    return std::move(compiled).value();
  }();
  for (const Kind kind : kKinds) {
    Halves halves(kind, schedule.devices);
    check_shared(schedule, halves);
  }
}

TEST_CASE("external: a failure of one process stops the other with the same first cause") {
  const ir::Schedule schedule = compiled("gpipe", 4, 2, 2);
  const TaskId culprit = find_task(schedule, "2F1[s0:v0]");
  for (const Kind kind : kKinds) {
    Halves halves(kind, schedule.devices);
    Recorder recorder(schedule);
    const auto answers = halves.run(schedule, recorder.handlers([&](TaskId task) -> ir::Status {
      if (task == culprit) {
        return ir::make_error(ir::ErrorKind::Runtime, "broken", "", "no luck");
      }
      return {};
    }));
    for (const auto& answer : answers) {
      REQUIRE(!answer->ok());
      CHECK(answer->error().to_string() == "2F1[s0:v0]: no luck [broken]");
    }
    recorder.check_stopped();
  }
}

TEST_CASE("external: what never comes ends in a time-out that names task, device and process") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const auto time_out = std::chrono::milliseconds(30);
  const auto check = [&schedule](Backend& backend) {
    Half half(1);
    Half deaf(0);
    half.join(deaf);
    const auto answer = executor::run(schedule, executor::no_op_handlers(), backend, &half);
    REQUIRE(!answer.ok());
    CHECK(answer.error().kind == ir::ErrorKind::Runtime);
    CHECK_MESSAGE(
        answer.error().to_string().find(
            "1RECV_F0[1000B]: device 1 waits to start it, until 0SEND_F0[1000B] on "
            "device 0 is done, which rank 0 has not said; nothing has moved for 0.03 s") !=
            std::string::npos,
        answer.error().to_string());
  };
  executor::InlineBackend in_line(time_out);
  check(in_line);
  auto pool = executor::CpuPool::create({.devices = 2});
  REQUIRE(pool.ok());
  executor::CpuBackend cpu(*pool.value(), {.time_out = time_out});
  check(cpu);
  FakeGpu fake({.gpus = 1});
  executor::GpuBackend gpu(fake, {.time_out = time_out});
  check(gpu);
}

TEST_CASE("external: a backend whose clock knows nothing of others refuses") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  const scheduler::CostModel costs = scheduler::uniform_costs(2, 2, 100, 200, ir::LinkSpec{});
  auto pool = executor::CpuPool::create({.devices = 2});
  REQUIRE(pool.ok());
  executor::VirtualBackend virtual_backend(costs);
  executor::EmulatedBackend emulated(*pool.value(), costs);
  for (Backend* backend :
       {static_cast<Backend*>(&virtual_backend), static_cast<Backend*>(&emulated)}) {
    Half half(1);
    const auto refused = executor::run(schedule, executor::no_op_handlers(), *backend, &half);
    REQUIRE(!refused.ok());
    CHECK(refused.error().kind == ir::ErrorKind::Usage);
    CHECK(refused.error().to_string().find("cannot wait for rank 0") != std::string::npos);
  }
}

TEST_CASE("external: a kind that only the other process runs needs no handler here") {
  const ir::Schedule schedule = compiled("gpipe", 1, 1, 1);  // device 0 only
  executor::InlineBackend backend;
  Half half(1);
  const auto timeline = executor::run(schedule, executor::HandlerTable{}, backend, &half);
  REQUIRE(timeline.ok());
  CHECK(timeline.value().spans.empty());
}

}  // namespace xpipe::tests
