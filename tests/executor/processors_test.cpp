// Pinning: who gets which processors, and that a pool's threads, and what they start, stay there.
#include "executor/cpu/processors.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_pool.h"

namespace xpipe::tests {
namespace {

using executor::pinned_processors;
using Processors = std::vector<std::vector<std::uint32_t>>;

TEST_CASE("pinning: threads get processors of their own, in the order of those allowed") {
  const std::vector<std::uint32_t> allowed{1, 2, 5, 6, 9, 12, 13, 14};
  CHECK(pinned_processors(allowed, {.threads = 3}) == Processors{{1}, {2}, {5}});
  CHECK(pinned_processors(allowed, {.threads = 2, .intra_op_threads = 3}) ==
        Processors{{1, 2, 5}, {6, 9, 12}});
  CHECK(pinned_processors(allowed, {.threads = 2, .local_rank = 1, .local_processes = 4}) ==
        Processors{{5}, {6}});
}

TEST_CASE("pinning: no processor is given twice, whatever the processes of a machine") {
  std::vector<std::uint32_t> allowed(24);
  for (std::uint32_t i = 0; i < allowed.size(); ++i) {
    allowed[i] = 3 * i;
  }
  for (std::uint32_t processes = 1; processes <= 8; ++processes) {
    for (std::uint32_t threads = 1; threads <= 8; ++threads) {
      for (std::uint32_t intra_op = 1; intra_op <= 3; ++intra_op) {
        std::multiset<std::uint32_t> given;
        for (std::uint32_t rank = 0; rank < processes; ++rank) {
          const Processors of_rank = pinned_processors(allowed, {.threads = threads,
                                                                 .intra_op_threads = intra_op,
                                                                 .local_rank = rank,
                                                                 .local_processes = processes});
          CHECK(of_rank.empty() == (processes * threads * intra_op > allowed.size()));
          for (const std::vector<std::uint32_t>& of_thread : of_rank) {
            CHECK(of_thread.size() == intra_op);
            given.insert(of_thread.begin(), of_thread.end());
          }
        }
        for (const std::uint32_t processor : given) {
          CHECK(given.count(processor) == 1);
          CHECK(std::ranges::binary_search(allowed, processor));
        }
      }
    }
  }
}

TEST_CASE("pinning: the place among a machine's processes is what the launcher says") {
  using Variables = std::map<std::string, std::string>;
  using executor::LocalPlace;
  const auto place = [](const Variables& variables) {
    return executor::local_place([&variables](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  CHECK(place({}) == LocalPlace{0, 1});
  CHECK(place({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}}) == LocalPlace{1, 4});
  CHECK(place({{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}) ==
        LocalPlace{2, 3});
  CHECK(place({{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "2"}}) == LocalPlace{0, 2});
  for (const Variables& bad :
       {Variables{{"LOCAL_RANK", "1"}}, Variables{{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}},
        Variables{{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", "4"}},
        Variables{{"LOCAL_RANK", "-1"}, {"LOCAL_WORLD_SIZE", "4"}},
        Variables{{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "2,1"}}}) {
    CHECK(!place(bad).has_value());
  }
}

TEST_CASE("pinning: where there are too few processors nobody is pinned") {
  CHECK(pinned_processors({0, 1}, {.threads = 3}).empty());
  CHECK(pinned_processors({0, 1}, {.threads = 1, .intra_op_threads = 4}).empty());
  CHECK(pinned_processors({}, {.threads = 1}).empty());
  // A rank that is no rank of its machine: somebody counted wrong.
  CHECK(pinned_processors({0, 1, 2}, {.threads = 1, .local_rank = 1}).empty());
}

TEST_CASE("pinning: a pool's thread, and what it starts, run on its processors only") {
  const std::vector<std::uint32_t> allowed = executor::allowed_processors();
  REQUIRE(!allowed.empty());
  const std::uint32_t last = allowed.back();
  std::vector<std::uint32_t> of_thread;
  std::vector<std::uint32_t> of_child;
  const auto pool = executor::CpuPool::create(
      {.devices = 1,
       .on_thread_start =
           [&](ir::DeviceId) {
             of_thread = executor::allowed_processors();
             std::thread([&] { of_child = executor::allowed_processors(); }).join();
           },
       .pin_to = {{last}}});
  REQUIRE(pool.ok());
  CHECK(of_thread == std::vector<std::uint32_t>{last});
  CHECK(of_child == std::vector<std::uint32_t>{last});
  CHECK(executor::allowed_processors() == allowed);  // the caller's own are as before
}

}  // namespace
}  // namespace xpipe::tests
