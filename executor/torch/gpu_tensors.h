// What tensors need where lanes are streams, and nothing where they are not: every function does
// the right thing for the CPU, so that handlers are one code for both. Knows streams by c10's
// interface only, which is linked without CUDA.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Event.h>
#include <torch/torch.h>

namespace xpipe::executor::nn {

/// Tells the caching allocator that the current stream uses `tensor`, which another lane's made:
/// its memory is not given away before that is over.
void adopt(const torch::Tensor& tensor);

/// `tensor` on `device`, without waiting for the copy. From the CPU it goes through pinned memory;
/// between GPUs directly where they can. Adopts what it reads.
[[nodiscard]] torch::Tensor moved_to(const torch::Tensor& tensor, torch::Device device);

/// The numbers of `tensor` on their way to pinned memory of the host, to be read when the current
/// stream has done so. On the CPU the tensor itself.
[[nodiscard]] torch::Tensor staged_to_host(const torch::Tensor& tensor);

/// Row-major, for whoever reads the memory on the current stream. Adopts what it reads.
[[nodiscard]] torch::Tensor dense(const torch::Tensor& tensor);

/// Two numbers on their way from the GPU to the host.
class PendingNumbers {
 public:
  PendingNumbers() = default;
  /// Of one element each. A GPU's are on the stream that is current.
  PendingNumbers(const torch::Tensor& first, const torch::Tensor& second);

  /// Whether they have arrived. Always so on the CPU. Does not block.
  [[nodiscard]] bool are_there() const;

  // These block until they have.
  [[nodiscard]] double first() const { return get(0); }

  [[nodiscard]] double second() const { return get(1); }

 private:
  [[nodiscard]] double get(std::int64_t i) const;

  torch::Tensor host_;
  std::shared_ptr<c10::Event> arrived_;  ///< none: they were never away
};

}  // namespace xpipe::executor::nn
