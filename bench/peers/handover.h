// The work that a contender of ./dev bench peers gets from the Python side: one mini-batch of data
// and the initial weights (bench/peers/works.py writes the file and says what it holds).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"

namespace xpipe::bench {

struct Handover {
  torch::Tensor inputs;
  torch::Tensor labels;
  std::vector<torch::Tensor> weights;  ///< by parameter of the model, in its order
};

/// Ends the program with what is wrong with the file.
[[nodiscard]] Handover read_handover(const std::filesystem::path& path);

/// "W1" or "W2" on the weights handed over; ends the program when they are of another model.
[[nodiscard]] executor::nn::Model model_of(const std::string& work, const Handover& handover);

/// Ends the program with `what` and status 5.
[[noreturn]] void fail(const std::string& what);

template <typename T>
T value_of(ir::Result<T> result) {
  if (!result.ok()) {
    fail(result.error().to_string());
  }
  return std::move(result).value();
}

inline void require(const ir::Status& status) {
  if (!status.ok()) {
    fail(status.error().to_string());
  }
}

}  // namespace xpipe::bench
