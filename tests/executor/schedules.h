// Schedules that the executor's tests run: compiled from policies, or written out where a test
// wants a task of every kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/schedule.h"
#include "scheduler/policy.h"

namespace xpipe::tests {

/// All policies that are registered.
[[nodiscard]] const std::vector<scheduler::Policy>& all_policies();

/// `bytes` per message and direction. Requires: a legal request (REQUIRE fails otherwise).
[[nodiscard]] ir::Schedule compiled(const scheduler::Policy& policy,
                                    std::uint32_t stages,
                                    std::uint32_t micro_batches,
                                    std::uint32_t mini_batches,
                                    ir::Bytes bytes = 1000,
                                    const scheduler::Options& options = {});

[[nodiscard]] ir::Schedule compiled(std::string_view policy,
                                    std::uint32_t stages,
                                    std::uint32_t micro_batches,
                                    std::uint32_t mini_batches,
                                    ir::Bytes bytes = 1000);

/// Two devices, two mini-batches of one micro-batch, each of the twelve kinds of task.
[[nodiscard]] ir::Schedule schedule_of_every_kind();

/// The first task with this text form. Requires: there is one.
[[nodiscard]] ir::TaskId find_task(const ir::Schedule& schedule, std::string_view text);

}  // namespace xpipe::tests
