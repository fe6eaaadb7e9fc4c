// Training on a GPU gives what training on the CPU gives, to the rounding of other kernels.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "executor/cuda/cuda_api.h"
#include "executor/cuda/cuda_prediction.h"
#include "executor/engine.h"
#include "executor/gpu_backend.h"
#include "executor/torch/gpu.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

bool skips_without_gpu() {
  const auto gpus = executor::cuda_gpus();
  const ir::Status loaded = gpus.ok() ? nn::load_cuda() : gpus.status();
  if (!loaded.ok()) {
    std::cout << "[SKIPPED] " << loaded.error().diagnostics[0].message << "\n";
  }
  return !loaded.ok();
}

struct Trained {
  std::vector<torch::Tensor> weights;
  std::vector<double> losses;
};

Trained train(const ir::Schedule& schedule,
              const ToyTraining& training,
              nn::RunOptions options,
              executor::Backend* gpu) {
  const auto toy = toy_run(schedule, training, std::move(options));
  Trained result;
  for (std::uint32_t epoch = 0; epoch < training.segments; ++epoch) {
    if (gpu != nullptr) {
      toy->run->begin_segment(toy->schedule, toy_segment(training, epoch));
      const auto ran = executor::run(toy->schedule, toy->run->handlers(), *gpu);
      REQUIRE_MESSAGE(ran.ok(), ran.error().to_string());
    } else {
      REQUIRE(run_segment(*toy, training, epoch, toy->run->handlers(), On::Inline).ok());
    }
    REQUIRE(toy->run->collect_losses(true).ok());
    for (const nn::MiniBatchRecord& record : toy->run->take_records()) {
      result.losses.push_back(record.loss);
    }
  }
  for (const torch::Tensor& weight : weights_of(*toy->run)) {
    result.weights.push_back(weight.cpu());
  }
  return result;
}

TEST_SUITE("gpu") {
  TEST_CASE("cuda: every policy trains to the cpu's weights and losses, stages sharing a GPU") {
    if (skips_without_gpu()) {
      return;
    }
    auto api = executor::make_cuda_api();
    REQUIRE(api.ok());
    executor::GpuBackend backend(
        *api.value(),
        {.device_map = {0}, .time_out = std::chrono::seconds(60), .on_lane = nn::use_gpu_stream});
    ToyTraining training;
    training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
    for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
      for (const nn::ComputeType type : {nn::ComputeType::Float32, nn::ComputeType::BFloat16}) {
        CAPTURE(policy);
        const std::uint32_t t = policy == "gpipe" || policy == "xpipe" ? 2 : 1;
        const ir::Schedule schedule =
            compiled(policy, 3, t, static_cast<std::uint32_t>(training.mini_batches.size()));
        nn::RunOptions options;
        options.compute.dtype = type;
        const Trained on_cpu = train(schedule, training, options, nullptr);
        options.compute.gpus = {0};
        options.compute.prediction_kernel =
            executor::cuda_prediction_kernel([&backend] { return backend.current(); });
        for (const auto& stage : schedule.stages) {
          options.replica_devices.push_back(stage.device());
        }
        const Trained on_gpu = train(schedule, training, options, &backend);
        const double tolerance = type == nn::ComputeType::Float32 ? 2e-3 : 5e-2;
        CHECK(largest_difference(on_gpu.weights, on_cpu.weights) < tolerance);
        REQUIRE(on_gpu.losses.size() == on_cpu.losses.size());
        for (std::size_t i = 0; i < on_cpu.losses.size(); ++i) {
          CHECK(on_gpu.losses[i] == doctest::Approx(on_cpu.losses[i]).epsilon(tolerance));
        }
        // One seed, one GPU: the same again.
        CHECK(on_gpu.losses == train(schedule, training, options, &backend).losses);
      }
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
