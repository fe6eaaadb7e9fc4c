#include "tests/executor/backends.h"

#include <iostream>

#include <doctest/doctest.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/emulated_backend.h"
#include "executor/gpu_backend.h"
#include "executor/inline_backend.h"
#include "executor/virtual_backend.h"
#include "scheduler/cost_model.h"
#include "tests/executor/fake_gpu.h"

namespace xpipe::tests {

namespace {

using executor::Backend;

/// Far below what a thread needs to wake up, so that real waiting does not make the suite slow.
scheduler::CostModel tiny_costs(const ir::Schedule& schedule) {
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  ir::LinkSpec link;
  link.latency = 10;
  return scheduler::uniform_costs(stages, schedule.devices, 100, 200, link);
}

std::unique_ptr<Backend> make_virtual(const ir::Schedule& schedule) {
  return std::make_unique<executor::VirtualBackend>(tiny_costs(schedule));
}

std::unique_ptr<Backend> make_emulated(executor::CpuPool& pool, const ir::Schedule& schedule) {
  return std::make_unique<executor::EmulatedBackend>(pool, tiny_costs(schedule));
}

std::unique_ptr<Backend> make_gpu(executor::GpuApi& gpu) {
  return std::make_unique<executor::GpuBackend>(
      gpu, executor::GpuBackendOptions{.device_map = {0, 1}, .ahead = 3});
}

std::vector<BackendCase> make_cases() {
  const std::string no_parallel = "has one thread: a task that waits for a later one never ends";
  std::vector<BackendCase> cases;
  cases.push_back(
      {.name = "inline",
       .make =
           [](const ir::Schedule&) {
             return BackendSetup{nullptr, nullptr, std::make_unique<executor::InlineBackend>()};
           },
       .make_another = [](BackendSetup&, const ir::Schedule&) -> std::unique_ptr<Backend> {
         return std::make_unique<executor::InlineBackend>();
       },
       .unsupported = {{"devices work at the same time", no_parallel}}});
  cases.push_back(
      {.name = "virtual",
       .make =
           [](const ir::Schedule& schedule) {
             return BackendSetup{nullptr, nullptr, make_virtual(schedule)};
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
             BackendSetup setup{std::move(pool).value(), nullptr, nullptr};
             setup.backend = std::make_unique<executor::CpuBackend>(*setup.pool);
             return setup;
           },
       .make_another = [](BackendSetup& setup, const ir::Schedule&) -> std::unique_ptr<Backend> {
         return std::make_unique<executor::CpuBackend>(*setup.pool);
       },
       .unsupported = {}});
  cases.push_back({.name = "emulated",
                   .make =
                       [](const ir::Schedule& schedule) {
                         auto pool = executor::CpuPool::create({.devices = schedule.devices});
                         REQUIRE(pool.ok());
                         BackendSetup setup{std::move(pool).value(), nullptr, nullptr};
                         setup.backend = make_emulated(*setup.pool, schedule);
                         return setup;
                       },
                   .make_another =
                       [](BackendSetup& setup, const ir::Schedule& schedule) {
                         return make_emulated(*setup.pool, schedule);
                       },
                   .unsupported = {}});
  cases.push_back(
      {.name = "gpu",
       .make =
           [](const ir::Schedule&) {
             BackendSetup setup{nullptr,
                                std::make_unique<FakeGpu>(FakeGpu::Options{.gpus = 2, .looks = 2}),
                                nullptr};
             setup.backend = make_gpu(*setup.gpu);
             return setup;
           },
       .make_another = [](BackendSetup& setup,
                          const ir::Schedule&) { return make_gpu(*setup.gpu); },
       .unsupported =
           {{"devices work at the same time",
             "one host thread launches: a launch that waits for a later one never ends"}}});
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
