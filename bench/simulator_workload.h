// What the benchmarks of compiler and simulator work on: 1F1B over one mini-batch of T
// micro-batches, stage k on device k, forward 1 ms, backward 2 ms, 1 MB a message over links of 10
// GB/s (0.1 ms). The same order as ../shared/bench's peers run, with the same sends and receives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <malloc.h>

#include "ir/schedule.h"
#include "ir/status.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/cost_model.h"

namespace xpipe::bench {

/// As the binary does (app/kept_memory.h, which only app may include).
inline void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

struct Size {
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;
};

/// A policy and what it is asked for.
struct Work {
  const scheduler::Policy* policy = nullptr;
  scheduler::PlanRequest request;
  scheduler::StageGraph graph;
};

inline const scheduler::Policy& policy_called(const std::string& name) {
  static const scheduler::PolicyRegistry registry = [] {
    scheduler::PolicyRegistry all;
    policies::register_all(all);
    return all;
  }();
  const auto found = registry.find(name);
  XPIPE_CHECK(found.ok()) << name;
  return *found.value();
}

inline Work work_of(const std::string& policy,
                    Size size,
                    std::uint32_t mini_batches,
                    const scheduler::Options& options) {
  Work work;
  work.policy = &policy_called(policy);
  work.request.stages = size.stages;
  work.request.micro_batches = size.micro_batches;
  work.request.mini_batches = mini_batches;
  const auto complete = scheduler::resolve_options(*work.policy, options);
  XPIPE_CHECK(complete.ok()) << complete.error().to_string();
  work.request.options = complete.value();
  work.graph = scheduler::chain_of(size.stages);
  for (scheduler::StageLink& link : work.graph.links) {
    link.bytes = 1'000'000;
  }
  return work;
}

/// XPipe's order without predictions, one step at the end: 1F1B.
inline Work one_f_one_b(Size size) {
  return work_of("xpipe", size, 1, {{"predict", "none"}});
}

inline ir::Schedule compiled(const Work& work) {
  auto schedule = scheduler::compile(*work.policy, work.request, work.graph);
  XPIPE_CHECK(schedule.ok()) << schedule.error().to_string();
  return std::move(schedule).value();
}

/// With half-duplex links the two directions of a pair contend for one channel.
inline scheduler::CostModel costs_of(std::uint32_t stages, ir::Duplex duplex) {
  ir::LinkSpec link;
  link.bandwidth_bytes_per_s = 1e10;
  link.duplex = duplex;
  return scheduler::uniform_costs(stages, stages, 1'000'000, 2'000'000, link);
}

}  // namespace xpipe::bench
