#include "tests/executor/schedules.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "scheduler/stage_graph.h"

namespace xpipe::tests {

namespace {

const scheduler::PolicyRegistry& registry() {
  static const scheduler::PolicyRegistry registry = [] {
    scheduler::PolicyRegistry all;
    policies::register_all(all);
    return all;
  }();
  return registry;
}

}  // namespace

const std::vector<scheduler::Policy>& all_policies() {
  return registry().all();
}

ir::Schedule compiled(const scheduler::Policy& policy,
                      std::uint32_t stages,
                      std::uint32_t micro_batches,
                      std::uint32_t mini_batches,
                      ir::Bytes bytes,
                      const scheduler::Options& options) {
  scheduler::StageGraph graph = scheduler::chain_of(stages);
  for (scheduler::StageLink& link : graph.links) {
    link.bytes = bytes;
  }
  auto schedule = scheduler::compile(policy,
                                     {.stages = stages,
                                      .micro_batches = micro_batches,
                                      .mini_batches = mini_batches,
                                      .options = options},
                                     graph);
  REQUIRE_MESSAGE(schedule.ok(), schedule.status().error().to_string());
  return std::move(schedule).value();
}

ir::Schedule compiled(std::string_view policy,
                      std::uint32_t stages,
                      std::uint32_t micro_batches,
                      std::uint32_t mini_batches,
                      ir::Bytes bytes) {
  const auto found = registry().find(policy);
  REQUIRE(found.ok());
  return compiled(*found.value(), stages, micro_batches, mini_batches, bytes);
}

ir::Schedule schedule_of_every_kind() {
  // compute 0   STASH F0 RECOMPUTE ............................ I W ALLREDUCE SUMTIED CLIP STEP
  //             RELEASE
  // compute 1                       F0 ... B ... STEP PREDICT
  auto schedule = ir::schedule_from_text(R"(# xpipe.schedule 1
policy by-hand
micro-batches 1
mini-batches 1
devices 2
stage 0 device 0 slots 2
stage 1 device 1 slots 2
compute 0: 0STASH0[s0:v0>s1] 0F0[s1:v0] 0RECOMPUTE0[s1:v0] 0I0[s1:v0] 0W0[s1:v0] 0ALLREDUCE0 0SUMTIED0[1] 0CLIP0 0STEP0[v0] 0RELEASE0[s1]
compute 1: 1F0[s0:v0] 1B0[s0:v0] 1STEP0[v0] 1PREDICT_F0[s0:v1>s1+1]
send 0>1: 0SEND_F0
receive 0>1: 1RECV_F0
send 1>0: 1SEND_B0
receive 1>0: 0RECV_B0
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 1B0>1SEND_B0 1SEND_B0>0RECV_B0 0RECV_B0>0I0
)",
                                         "by-hand.tasks");
  REQUIRE_MESSAGE(schedule.ok(), schedule.status().error().to_string());
  return std::move(schedule).value();
}

ir::TaskId find_task(const ir::Schedule& schedule, std::string_view text) {
  const auto found = std::ranges::find_if(
      schedule.tasks, [text](const ir::Task& task) { return ir::to_text(task) == text; });
  REQUIRE_MESSAGE(found != schedule.tasks.end(), "no task " << std::string(text));
  return ir::TaskId{static_cast<std::uint32_t>(found - schedule.tasks.begin())};
}

}  // namespace xpipe::tests
