// However one rank fails, all end, and with the same first cause.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/engine.h"
#include "executor/processes/processes.h"
#include "tests/executor/schedules.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {

namespace {

using executor::Processes;
using std::chrono::milliseconds;

/// What the ranks said at their ends.
class Said {
 public:
  void add(const ir::Error& error) {
    const std::lock_guard lock(mutex_);
    all_.push_back(error);
  }

  /// `count` ranks said the same.
  void check(std::size_t count, const std::string& text, ir::ErrorKind kind) const {
    CHECK(all_.size() == count);
    for (const ir::Error& error : all_) {
      CHECK(error.kind == kind);
      CHECK_MESSAGE(error.to_string().find(text) == 0, error.to_string());
    }
  }

 private:
  std::mutex mutex_;
  std::vector<ir::Error> all_;
};

/// Runs gpipe over four stages; `at` is called for every task.
ir::Status run_four(Processes& peers, const std::function<ir::Status(const ir::Task&)>& at) {
  static const ir::Schedule schedule = compiled("gpipe", 4, 4, 50);
  peers.set_devices(4);
  auto pool = executor::CpuPool::create({.devices = 4});
  REQUIRE(pool.ok());
  executor::CpuBackend backend(*pool.value());
  executor::HandlerTable handlers;
  handlers.fill([&at](const ir::Schedule& s, ir::TaskId id) { return at(s.task(id)); });
  return executor::run(schedule, handlers, backend, &peers).status();
}

/// A link on which large pieces never arrive.
class StallingLink final : public executor::Link {
 public:
  explicit StallingLink(std::unique_ptr<executor::Link> link) : link_(std::move(link)) {}

  ir::Status send(std::span<const std::byte> bytes) override {
    if (bytes.size() > executor::kHeadBytes) {
      aborted_.wait(false);
    }
    return link_->send(bytes);
  }

  ir::Status receive(std::span<std::byte> bytes) override { return link_->receive(bytes); }

  void abort() override {
    aborted_ = true;
    aborted_.notify_all();
    link_->abort();
  }

 private:
  const std::unique_ptr<executor::Link> link_;
  std::atomic<bool> aborted_ = false;
};

bool is(const ir::Task& task, ir::TaskKind kind, std::uint32_t stage, std::uint32_t micro_batch) {
  const ir::MicroBatch* j = ir::micro_batch_of(task);
  return task.kind() == kind && ir::index_of(task.stage) == stage && j != nullptr &&
         ir::index_of(*j) == micro_batch;
}

}  // namespace

TEST_CASE("processes: a task that fails ends all ranks with its rank, stage and text") {
  Said said;
  run_ranks(4, [&](Processes& peers) {
    const ir::Status status = run_four(peers, [](const ir::Task& task) -> ir::Status {
      if (is(task, ir::TaskKind::Forward, 2, 9)) {
        return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "", "out of memory");
      }
      return {};
    });
    REQUIRE(!status.ok());
    said.add(peers.leave(status.error()));
    CHECK(peers.signal() == 0);
  });
  said.check(4, "rank 2, stage 2, task 2F9[s0:v2]: out of memory [torch-failed]",
             ir::ErrorKind::Runtime);
}

TEST_CASE("processes: a rank that is gone without a word is named by all others") {
  Said said;
  run_ranks(4, [&](Processes& peers) {
    const bool leaves = peers.rank() == 1;
    const ir::Status status = run_four(peers, [&](const ir::Task& task) -> ir::Status {
      if (leaves && is(task, ir::TaskKind::Forward, 1, 5)) {
        return ir::make_error(ir::ErrorKind::Internal, "test", "", "leaves without a word");
      }
      return {};
    });
    REQUIRE(!status.ok());
    if (!leaves) {
      const ir::Error error = peers.leave(status.error());
      CHECK_MESSAGE(error.to_string().find("peer rank 1: rank 1 is gone") != std::string::npos,
                    error.to_string());
      said.add(error);
    }
  });
  said.check(3, "rank ", ir::ErrorKind::Runtime);
}

// Ctrl-C goes to all ranks; SIGTERM just after a loss is what launchers answer to it with.
TEST_CASE("processes: a rank lost just before this one's own Ctrl-C is the signal's doing") {
  struct Row {
    int signal;
    int after_ms;  // the loss; < 0: before it
    ir::ErrorKind kind;
  };

  for (const Row& row :
       {Row{SIGINT, 50, ir::ErrorKind::Interrupted}, Row{SIGTERM, 50, ir::ErrorKind::Runtime},
        Row{SIGINT, -1, ir::ErrorKind::Interrupted}, Row{SIGTERM, -1, ir::ErrorKind::Interrupted},
        Row{0, 50, ir::ErrorKind::Runtime}}) {
    CAPTURE(row.signal);
    CAPTURE(row.after_ms);
    auto links = socket_links(2);
    std::atomic<bool> interrupted = row.signal != 0 && row.after_ms < 0;
    links[1].clear();  // as a second Ctrl-C kills it
    Processes peers(
        std::move(links[0]),
        {.rank = 0, .stops = {.interrupted = &interrupted, .signal = [&] { return row.signal; }}});
    std::thread signal([&] {
      std::this_thread::sleep_for(milliseconds(std::max(row.after_ms, 0)));
      interrupted = row.signal != 0;
    });
    const auto parcel = peers.receive(1);
    signal.join();
    REQUIRE(!parcel.ok());
    const ir::Error error = peers.leave(parcel.error());
    const bool by_signal = row.kind == ir::ErrorKind::Interrupted;
    CHECK(error.kind == row.kind);
    CHECK(peers.signal() == (by_signal ? row.signal : 0));
    const char* text = by_signal ? "rank 0: stopped by a signal" : "peer rank 1: rank 1 is gone";
    CHECK_MESSAGE(error.to_string().find(text) != std::string::npos, error.to_string());
  }
}

TEST_CASE("processes: a rank of which nothing is heard has failed, whoever waits for it or not") {
  auto links = socket_links(3);  // nobody serves rank 1's ends
  std::vector<std::thread> threads;
  Said said;
  for (const std::uint32_t rank : {0U, 2U}) {
    threads.emplace_back([&, rank] {
      Processes peers(std::move(links[rank]), {.rank = rank, .time_out = milliseconds(400)});
      const auto parcel = peers.receive(rank == 0 ? 2 : 0);
      REQUIRE(!parcel.ok());
      const ir::Error error = peers.leave(parcel.error());
      CHECK(error.to_string().find("peer rank 1: nothing has been heard of rank 1 for 0.3 s") !=
            std::string::npos);
      said.add(error);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  said.check(2, "rank ", ir::ErrorKind::Runtime);
}

TEST_CASE("processes: a transfer that stalls half-way is named, and both ends hear of it") {
  auto links = socket_links(2);
  links[0][1] = std::make_unique<StallingLink>(std::move(links[0][1]));
  std::vector<std::thread> threads;
  Said said;
  threads.reserve(2);
  for (const std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      Processes peers(std::move(links[rank]), {.rank = rank, .time_out = milliseconds(400)});
      if (rank == 0) {
        REQUIRE(peers.send(1, executor::parcel_of(std::string(5'000'000, 'x'))).ok());
      }
      const auto parcel = peers.receive(1 - rank);
      REQUIRE(!parcel.ok());
      said.add(peers.leave(parcel.error()));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  said.check(2,
             "rank 1, peer rank 0: nothing has been heard of rank 0 for 0.3 s, in the middle of a "
             "message of 5000000 bytes",
             ir::ErrorKind::Runtime);
}

/// Has no memory for what comes with sends.
class PoorMail final : public executor::Mail {
 public:
  explicit PoorMail(const ir::Schedule& schedule) : schedule_(schedule) {}

  [[nodiscard]] std::optional<executor::Parcel> collect(ir::TaskId /*task*/) override {
    return executor::parcel_of(std::string(5000, 'x'));
  }

  ir::Status deliver(ir::TaskId task, executor::Parcel /*parcel*/) override {
    if (schedule_.task(task).kind() == ir::TaskKind::Send) {
      throw std::bad_alloc();
    }
    return {};
  }

 private:
  const ir::Schedule& schedule_;
};

TEST_CASE("processes: no memory for a message names its task, stage, bytes and sender") {
  const ir::Schedule schedule = compiled("gpipe", 2, 1, 1);
  Said said;
  run_ranks(2, [&](Processes& peers) {
    PoorMail mail(schedule);
    peers.set_devices(2);
    peers.set_mail(&mail);
    auto pool = executor::CpuPool::create({.devices = 2});
    REQUIRE(pool.ok());
    executor::CpuBackend backend(*pool.value());
    executor::HandlerTable handlers;
    handlers.fill([](const ir::Schedule&, ir::TaskId) { return ir::Status(); });
    const ir::Status status = executor::run(schedule, handlers, backend, &peers).status();
    REQUIRE(!status.ok());
    said.add(peers.leave(status.error()));
  });
  said.check(
      2,
      "rank 1, stage 0, task 0SEND_F0[1000B]: its message of 5000 bytes, from rank 0, cannot be "
      "taken here: std::bad_alloc [receive-failed]",
      ir::ErrorKind::Runtime);
}

TEST_CASE("processes: a rank that is busy for long is not silent") {
  run_ranks(
      2,
      [](Processes& peers) {
        // Longer than a silent rank is waited for.
        if (peers.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(1700));
        }
        CHECK(peers.send(1 - peers.rank(), executor::parcel_of("here")).ok());
        const auto parcel = peers.receive(1 - peers.rank());
        CHECK_MESSAGE(parcel.ok(), parcel.status().error().to_string());
        CHECK(peers.finish().ok());
      },
      std::chrono::seconds(2));
}

TEST_CASE("processes: a message that does not come ends in a time-out that names both") {
  std::latch over(2);
  run_ranks(
      2,
      [&](Processes& peers) {
        if (peers.rank() == 0) {
          const auto parcel = peers.receive(1);
          REQUIRE(!parcel.ok());
          CHECK(parcel.error().to_string().find(
                    "rank 0: waits for a message of rank 1 between two runs, and none has come for "
                    "0.3 s") == 0);
        }
        over.arrive_and_wait();
        (void)peers.leave(
            ir::make_error(ir::ErrorKind::Internal, "test", "", "comes after the first"));
      },
      milliseconds(300));
}

TEST_CASE("processes: a signal to one rank interrupts all, with its number") {
  for (const int signal : {2, 15}) {
    std::atomic<bool> interrupted = false;
    auto links = socket_links(3);
    std::vector<std::thread> threads;
    Said said;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Processes peers(std::move(links[rank]),
                        {.rank = rank,
                         .time_out = std::chrono::seconds(60),
                         .stops = {.interrupted = rank == 1 ? &interrupted : nullptr,
                                   .signal = [signal] { return signal; }}});
        if (rank == 0) {
          interrupted = true;
        }
        const auto parcel = peers.receive((rank + 1) % 3);
        REQUIRE(!parcel.ok());
        said.add(peers.leave(parcel.error()));
        CHECK(peers.signal() == signal);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    said.check(3, "rank 1: stopped by a signal [interrupted]", ir::ErrorKind::Interrupted);
  }
}

TEST_CASE("processes: what is no frame of ours ends the run and names the peer") {
  auto links = socket_links(2);
  Processes peers(std::move(links[0]), {.rank = 0, .time_out = std::chrono::seconds(60)});
  const std::vector<std::byte> noise(executor::kHeadBytes, std::byte{0x42});
  REQUIRE(links[1][0]->send(noise).ok());
  const auto parcel = peers.receive(1);
  REQUIRE(!parcel.ok());
  CHECK(parcel.error().to_string() ==
        "rank 0, peer rank 1: what came is no frame of xpipe; do all ranks run the same build? "
        "[bad-frame]");
}

}  // namespace xpipe::tests
