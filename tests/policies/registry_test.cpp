// What holds for every policy there is, over a grid of sizes and all options: it compiles to a
// legal schedule, each task stands there once, and its promises hold, measured by replaying the
// schedule. A new policy is covered by its line in policies/register_all.cpp.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "ir/validate.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"
#include "tests/policies/replay.h"

namespace xpipe::tests {
namespace {

using scheduler::Options;
using scheduler::PlanRequest;
using scheduler::Policy;

std::vector<std::string> values_of(const scheduler::OptionSpec& spec) {
  if (!spec.range) {
    return spec.values;
  }
  return {std::to_string(spec.range->low), spec.default_value, std::to_string(spec.range->high)};
}

/// Every combination of option values.
std::vector<Options> combinations(const Policy& policy) {
  std::vector<Options> all = {{}};
  for (const scheduler::OptionSpec& spec : policy.options) {
    std::vector<Options> longer;
    for (const Options& options : all) {
      for (const std::string& value : values_of(spec)) {
        longer.push_back(options);
        longer.back()[spec.name] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// The defaults, and every value of one option at a time.
std::vector<Options> one_at_a_time(const Policy& policy) {
  std::vector<Options> all = {{}};
  for (const scheduler::OptionSpec& spec : policy.options) {
    for (const std::string& value : values_of(spec)) {
      if (value != spec.default_value) {
        all.push_back({{spec.name, value}});
      }
    }
  }
  return all;
}

std::string describe(const Policy& policy, const PlanRequest& request) {
  std::string text = policy.name + " D=" + std::to_string(request.stages) +
                     " T=" + std::to_string(request.micro_batches) +
                     " N=" + std::to_string(request.mini_batches);
  for (const auto& [name, value] : request.options) {
    text += " " + name + "=" + value;
  }
  return text;
}

void check_each_task_once(const ir::Schedule& schedule) {
  std::map<std::tuple<ir::TaskKind, ir::StageId, std::uint32_t>, int> count;
  for (const ir::Task& task : schedule.tasks) {
    if (ir::weights_read(task) != nullptr) {
      ++count[{task.kind(), task.stage, ir::index_of(*ir::micro_batch_of(task))}];
    } else if (task.kind() == ir::TaskKind::Step) {
      ++count[{task.kind(), task.stage, ir::index_of(std::get<ir::Step>(task.payload).mini_batch)}];
    }
  }
  const std::size_t micro_batches =
      static_cast<std::size_t>(schedule.micro_batches) * schedule.mini_batches;
  CHECK(count.size() == schedule.stages.size() * (2 * micro_batches + schedule.mini_batches));
  for (const auto& [task, times] : count) {
    CHECK(times == 1);
  }
}

void check_stage(const scheduler::StagePromise& promise, const scheduler::StagePromise& measured) {
  CHECK(measured.in_flight <= promise.in_flight);
  CHECK(measured.versions_held <= promise.versions_held);
  CHECK(measured.forward_staleness == promise.forward_staleness);
  CHECK(measured.backward_staleness == promise.backward_staleness);
  CHECK(measured.predict_forward == promise.predict_forward);
  CHECK(measured.predict_backward == promise.predict_backward);
}

void check_bubble(const ir::Schedule& schedule,
                  const scheduler::Promises& promises,
                  std::int64_t forward,
                  std::int64_t backward) {
  const std::int64_t busy =
      std::int64_t{schedule.micro_batches} * schedule.mini_batches * (forward + backward);
  const std::int64_t total = makespan_in_slots(schedule, forward, backward);
  // idle / total == numerator / denominator, on D equal devices
  CHECK(static_cast<std::uint64_t>(total - busy) * promises.bubble_denominator ==
        promises.bubble_numerator * static_cast<std::uint64_t>(total));
}

void check_policy(const Policy& policy, const PlanRequest& request) {
  INFO(describe(policy, request));
  const auto compiled = scheduler::compile(policy, request, scheduler::chain_of(request.stages));
  REQUIRE_MESSAGE(compiled.ok(), (compiled.ok() ? "" : compiled.error().to_string()));
  const ir::Schedule& schedule = compiled.value();
  CHECK(ir::validate(schedule).empty());
  CHECK(schedule.policy == policy.name);
  check_each_task_once(schedule);

  PlanRequest complete = request;
  complete.options = scheduler::resolve_options(policy, request.options).value();
  complete.micro_batches = schedule.micro_batches;
  const scheduler::Promises promises = policy.promises(complete);
  REQUIRE(promises.stages.size() == request.stages);
  bool sequential = true;
  for (std::uint32_t k = 0; k < request.stages; ++k) {
    CAPTURE(k);
    const StageReplay stage = replay_stage(schedule, k);
    CHECK(stage.faults.empty());
    CHECK(stage.last_version == request.mini_batches);
    CHECK(schedule.stages[k].slots == stage.versions_held);
    check_stage(promises.stages[k], measured_promise(stage, schedule.micro_batches));
    sequential = sequential && is_sequential(stage, schedule.micro_batches);
  }
  CHECK(promises.equals_sequential == sequential);
  check_bubble(schedule, promises, 1, 1);
  check_bubble(schedule, promises, 1, 2);
}

TEST_CASE("policies: registered in the order in which they are listed") {
  std::vector<std::string> names;
  for (const Policy& policy : registry().all()) {
    names.push_back(policy.name);
  }
  const std::vector<std::string> expected = {"xpipe", "gpipe", "pipedream", "spectrain"};
  CHECK(names == expected);
}

TEST_CASE("policies: each says what it is, where it is from and what it promises") {
  for (const Policy& policy : registry().all()) {
    CAPTURE(policy.name);
    for (const std::string* text :
         {&policy.summary, &policy.source, &policy.promise_text.bubble,
          &policy.promise_text.in_flight, &policy.promise_text.versions_held,
          &policy.promise_text.staleness, &policy.promise_text.prediction}) {
      CHECK_FALSE(text->empty());
    }
    for (const scheduler::OptionSpec& spec : policy.options) {
      CAPTURE(spec.name);
      CHECK_FALSE(spec.help.empty());
      CHECK(scheduler::resolve_options(policy, {{spec.name, spec.default_value}}).ok());
    }
  }
}

TEST_CASE("policies: legal schedules that keep their promises for D, T <= 8") {
  for (const Policy& policy : registry().all()) {
    for (const Options& options : one_at_a_time(policy)) {
      for (std::uint32_t d = 1; d <= 8; ++d) {
        for (std::uint32_t t = 1; t <= (policy.whole_mini_batch ? 1 : 8); ++t) {
          for (std::uint32_t n : {1U, 2U, 3U, 5U, 8U, 12U}) {
            check_policy(policy, {d, t, n, options});
          }
        }
      }
    }
  }
}

TEST_CASE("policies: every combination of options keeps the promises") {
  for (const Policy& policy : registry().all()) {
    for (const Options& options : combinations(policy)) {
      for (std::uint32_t d : {1U, 2U, 3U, 5U}) {
        for (std::uint32_t t : {1U, 2U, 3U, 4U}) {
          for (std::uint32_t n : {1U, 3U, 6U}) {
            check_policy(policy, {d, t, n, options});
          }
        }
      }
    }
  }
}

TEST_CASE("policies: promised storages and micro-batches in flight are reached") {
  for (const Policy& policy : registry().all()) {
    for (const Options& options : one_at_a_time(policy)) {
      for (std::uint32_t d : {1U, 2U, 4U, 6U}) {
        for (std::uint32_t n : {1U, 2U, 5U, 12U}) {
          const PlanRequest request{d, policy.whole_mini_batch ? 1U : 3U, n,
                                    scheduler::resolve_options(policy, options).value()};
          INFO(describe(policy, request));
          const scheduler::Promises promises = policy.promises(request);
          const ir::Schedule schedule = compiled(policy.name, d, 3, n, options);
          for (std::uint32_t k = 0; k < d; ++k) {
            CAPTURE(k);
            const StageReplay stage = replay_stage(schedule, k);
            CHECK(stage.in_flight == promises.stages[k].in_flight);
            CHECK(stage.versions_held == promises.stages[k].versions_held);
          }
        }
      }
    }
  }
}

TEST_CASE("policies: an unknown option is refused by name, with those there are") {
  for (const Policy& policy : registry().all()) {
    const auto result =
        scheduler::compile(policy, {2, 2, 2, {{"colour", "red"}}}, scheduler::chain_of(2));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Usage);
    const std::string text = result.error().to_string();
    CAPTURE(text);
    CHECK(text.find("'colour'") != std::string::npos);
    for (const scheduler::OptionSpec& spec : policy.options) {
      CHECK(text.find(spec.name) != std::string::npos);
    }
  }
}

TEST_CASE("policies: an illegal value is refused with the option and its legal values") {
  for (const Policy& policy : registry().all()) {
    for (const scheduler::OptionSpec& spec : policy.options) {
      const auto result =
          scheduler::compile(policy, {2, 2, 2, {{spec.name, "wrong"}}}, scheduler::chain_of(2));
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().kind == ir::ErrorKind::Usage);
      const std::string text = result.error().to_string();
      CAPTURE(text);
      CHECK(text.find("'" + spec.name + "'") != std::string::npos);
      CHECK(text.find("'wrong'") != std::string::npos);
      for (const std::string& value : spec.values) {
        CHECK(text.find(value) != std::string::npos);
      }
    }
  }
}

TEST_CASE("policies: all faults of a request's options are told at once") {
  const auto result =
      scheduler::compile(*registry().find("xpipe").value(),
                         {2, 2, 2, {{"rounding", "up"}, {"predcit", "none"}, {"bias", "none"}}},
                         scheduler::chain_of(2));
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().diagnostics.size() == 3);
  CHECK(result.error().to_string().find("did you mean 'predict'?") != std::string::npos);
}

TEST_CASE("policies: a size of zero is refused with the option that it belongs to") {
  for (const Policy& policy : registry().all()) {
    const auto result = scheduler::compile(policy, {0, 0, 0, {}}, scheduler::chain_of(0));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ir::ErrorKind::Usage);
    const std::string text = result.error().to_string();
    for (const char* option : {"--stages", "--micro-batches", "--mini-batches"}) {
      CHECK(text.find(std::string(option) + ": found 0") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
