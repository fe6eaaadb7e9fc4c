#include "tests/executor/backends.h"

#include <iostream>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/inline_backend.h"
#include "executor/virtual_backend.h"
#include "scheduler/cost_model.h"

namespace xpipe::tests {

namespace {

using executor::Backend;

std::unique_ptr<Backend> make_virtual(const ir::Schedule& schedule) {
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  ir::LinkSpec link;
  link.latency = 10;
  return std::make_unique<executor::VirtualBackend>(
      scheduler::uniform_costs(stages, schedule.devices, 100, 200, link));
}

std::vector<BackendCase> make_cases() {
  const std::string no_parallel = "has one thread: a task that waits for a later one never ends";
  std::vector<BackendCase> cases;
  cases.push_back(
      {.name = "inline",
       .make =
           [](const ir::Schedule&) {
             return BackendSetup{nullptr, std::make_unique<executor::InlineBackend>()};
           },
       .make_another = [](BackendSetup&, const ir::Schedule&) -> std::unique_ptr<Backend> {
         return std::make_unique<executor::InlineBackend>();
       },
       .unsupported = {{"devices work at the same time", no_parallel}}});
  cases.push_back(
      {.name = "virtual",
       .make =
           [](const ir::Schedule& schedule) {
             return BackendSetup{nullptr, make_virtual(schedule)};
           },
       .make_another = [](BackendSetup&,
                          const ir::Schedule& schedule) { return make_virtual(schedule); },
       .unsupported = {{"devices work at the same time", no_parallel},
                       {"spans are measured", "its times are planned"}}});
  cases.push_back(
      {.name = "cpu",
       .make =
           [](const ir::Schedule& schedule) {
             auto pool = executor::CpuPool::create({.devices = schedule.devices});
             REQUIRE(pool.ok());
             BackendSetup setup{std::move(pool).value(), nullptr};
             setup.backend = std::make_unique<executor::CpuBackend>(*setup.pool);
             return setup;
           },
       .make_another = [](BackendSetup& setup, const ir::Schedule&) -> std::unique_ptr<Backend> {
         return std::make_unique<executor::CpuBackend>(*setup.pool);
       },
       .unsupported = {}});
  return cases;
}

}  // namespace

const std::vector<BackendCase>& backend_cases() {
  static const std::vector<BackendCase> cases = make_cases();
  return cases;
}

void for_each_backend(const std::string& conformance_case,
                      const std::function<void(const BackendCase&)>& test) {
  int ran = 0;
  for (const BackendCase& backend : backend_cases()) {
    if (const auto found = backend.unsupported.find(conformance_case);
        found != backend.unsupported.end()) {
      std::cout << "not run on " << backend.name << ": " << conformance_case << " ("
                << found->second << ")\n";
      continue;
    }
    INFO("backend ", backend.name);
    test(backend);
    ++ran;
  }
  CHECK(ran > 0);
}

}  // namespace xpipe::tests
