// Where there is nothing to predict, predicting changes no bit (field case D3): one stage, no
// history yet, no step size.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

ToyTraining neutral_training(std::uint32_t mini_batches) {
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.1, .momentum = 0.9};
  training.mini_batches.assign(mini_batches, 12);
  training.segments = 1;
  return training;
}

TEST_CASE(
    "prediction: neutral on one stage, in the first mini-batch and without a step size (D3)") {
  struct Case {
    std::string name;
    std::uint32_t stages;
    std::uint32_t mini_batches;
    double learning_rate;
  };

  for (const Case& c : std::vector<Case>{{"one stage", 1, 10, 0.1},
                                         {"one mini-batch", 4, 1, 0.1},
                                         {"learning rate 0", 4, 10, 0.0}}) {
    CAPTURE(c.name);
    ToyTraining training = neutral_training(c.mini_batches);
    training.optimizer.learning_rate = c.learning_rate;
    for (const std::uint32_t micro_batches : {1U, 4U}) {
      const std::vector<torch::Tensor> plain =
          trained(compiled("gpipe", c.stages, micro_batches, c.mini_batches), training);
      for (const std::string policy : {"xpipe", "pipedream", "spectrain"}) {
        if (policy != "xpipe" && micro_batches > 1 && c.learning_rate > 0.0) {
          continue;  // whole mini-batches are other sums than T parts
        }
        CAPTURE(policy);
        CAPTURE(micro_batches);
        const ir::Schedule schedule = compiled(policy, c.stages, micro_batches, c.mini_batches);
        CHECK(same_bits(trained(schedule, training), plain));
      }
    }
  }
}

TEST_CASE("prediction: with a gap, a history and a step size it is not neutral") {
  const ToyTraining training = neutral_training(10);
  CHECK_FALSE(same_bits(trained(compiled("xpipe", 4, 1, 10), training),
                        trained(compiled("xpipe", 4, 1, 10, {{"predict", "none"}}), training)));
}

}  // namespace
}  // namespace xpipe::tests
