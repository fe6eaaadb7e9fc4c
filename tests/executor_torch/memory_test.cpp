// Memory over a long training, counted at LibTorch's allocator: as many weight copies as the policy
// promises, and not a byte more after 1,000 mini-batches than after the first ones.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "executor/engine.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

/// What this thread's tensors hold, beyond what they held at first.
class Counter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/,
                         std::int64_t bytes,
                         std::size_t /*allocated*/,
                         std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    live += bytes;
    peak = std::max(peak, live);
  }

  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  std::int64_t live = 0;
  std::int64_t peak = 0;
};

struct Case {
  std::string policy;
  std::uint32_t micro_batches;
  std::uint32_t mini_batches;
};

TEST_CASE("memory: flat over 1,000 mini-batches, and weights, slots and moments are all of it") {
  const nn::IntraOpThreads one(1);
  constexpr std::uint32_t kSegment = 50;
  for (const Case& c : {Case{"xpipe", 2, 1000}, Case{"pipedream", 1, 300}, Case{"gpipe", 2, 300},
                        Case{"spectrain", 1, 300}}) {
    CAPTURE(c.policy);
    ToyTraining training;
    training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.001};
    training.mini_batches.assign(kSegment, 4);
    const ir::Schedule schedule = compiled(c.policy, 4, c.micro_batches, kSegment);
    const nn::Samples samples = toy_samples(kSegment * 4, training.dtype);
    const auto counter = std::make_shared<Counter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    nn::RunOptions options;
    options.optimizer = training.optimizer;
    options.predicts = nn::predicts(schedule);
    nn::TrainingRun run(nn::cut(toy_model(training.seed, training.dtype), toy_partition(4)),
                        samples, std::move(options));
    const executor::HandlerTable handlers = run.handlers();
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (std::uint32_t segment = 0; segment < c.mini_batches / kSegment; ++segment) {
      counter->peak = 0;
      run.begin_segment(schedule, toy_segment(training, segment));
      executor::InlineBackend backend;
      REQUIRE(executor::run(schedule, handlers, backend).ok());
      if (segment == 1) {  // moments and slots are there
        live = counter->live;
        peak = counter->peak;
      } else if (segment > 1) {
        CHECK(counter->live == live);
        CHECK(counter->peak == peak);
      }
    }
    std::int64_t expected = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const nn::Stage& stage = run.stages()[k];
      for (const torch::Tensor& weight : stage.weights()) {
        expected += static_cast<std::int64_t>(weight.nbytes()) * schedule.stages[k].slots;
      }
      expected += stage.optimizer().state_bytes();
    }
    // The allocator rounds up small tensors; it never holds as much as one more copy of any stage.
    std::int64_t smallest = expected;
    for (const nn::Stage& stage : run.stages()) {
      std::int64_t bytes = 0;
      for (const torch::Tensor& weight : stage.weights()) {
        bytes += static_cast<std::int64_t>(weight.nbytes());
      }
      smallest = std::min(smallest, bytes);
    }
    CHECK(live >= expected);
    CHECK(live < expected + smallest);
  }
}

}  // namespace
}  // namespace xpipe::tests
