// Trains a net of one's own on two stages by XPipe: the whole program. docs/models.md tells how to
// build it against an installed XPipe.
#include <iostream>

#include "executor/cpu/cpu_backend.h"
#include "executor/torch/own_model.h"
#include "executor/torch/trainer.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace nn = xpipe::executor::nn;

int main(int /*argc*/, char** argv) {
  const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 64),
                                  torch::nn::ReLU(), torch::nn::Linear(64, 10));
  nn::TrainConfig config{.data = argv[1], .stages = 2, .micro_batches = 4, .epochs = 3};
  auto trainer = nn::Trainer::create(config, nn::own_model(net)).value();

  xpipe::scheduler::PolicyRegistry policies;
  xpipe::policies::register_all(policies);
  const auto schedule = [&](std::uint32_t micro_batches, std::uint32_t mini_batches) {
    return xpipe::scheduler::compile(
        *policies.find("xpipe").value(),
        {.stages = config.stages, .micro_batches = micro_batches, .mini_batches = mini_batches},
        trainer.facts().stage_graph);
  };
  const auto pool = xpipe::executor::CpuPool::create({.devices = config.stages}).value();
  xpipe::executor::CpuBackend backend(*pool);
  const auto result = trainer.train(schedule, backend).value();
  std::cout << "test accuracy " << result.epochs.back().test_accuracy << '\n';
  torch::save(net, "own_model.pt");  // the net itself holds the trained weights
}
