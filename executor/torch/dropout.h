// Dropout whose masks do not depend on how a model is cut or scheduled: a mask is drawn from
// (seed, mini-batch, micro-batch, layer) alone. A recompute of a forward draws the same mask again.
//
// The pass that a thread is in is thread-local: a forward runs on the thread that calls it.
#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

namespace xpipe::executor::nn {

/// Which forward this is.
struct PassKey {
  std::uint64_t seed = 0;
  std::uint64_t mini_batch = 0;   ///< counted over the run, so that no border changes a mask
  std::uint64_t micro_batch = 0;  ///< within its mini-batch
};

/// While it lives, the dropouts of this thread's forwards draw their masks for `key`. Nests.
class PassScope {
 public:
  explicit PassScope(const PassKey& key);
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;
  ~PassScope();

 private:
  const PassKey* previous_;
  PassKey key_;
};

/// The seed of layer `layer`'s masks in the pass that this thread is in; none outside of passes.
[[nodiscard]] std::optional<std::uint64_t> pass_seed(std::uint64_t layer);

/// Zeroes each number with `probability` and scales the rest by 1 / (1 - probability), in training;
/// the identity in evaluation. Throws c10::Error for a training forward outside of a PassScope.
class KeyedDropoutImpl : public torch::nn::Module {
 public:
  /// `layer`: its index in the model. Requires: 0 <= probability < 1.
  KeyedDropoutImpl(double probability, std::uint64_t layer);

  torch::Tensor forward(const torch::Tensor& input);  // not const: AnyModule asks for that

 private:
  double probability_;
  std::uint64_t layer_;
};

TORCH_MODULE(KeyedDropout);

}  // namespace xpipe::executor::nn
