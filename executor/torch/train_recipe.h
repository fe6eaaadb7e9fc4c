// How a training steps: what becomes of the samples that are left at the end of an epoch, and what
// the loss is, of a sample and of a mini-batch. Plain values, no torch.
#pragma once

#include <cstdint>

namespace xpipe::executor::nn {

/// The last mini-batch of an epoch, where the samples do not fill it.
enum class LastBatch : std::uint8_t {
  Keep,  ///< it is trained; the loss is the mean over the samples that it has
  Drop,  ///< its samples are left out, in this epoch
};

/// Of a mini-batch's loss over its samples, however it is cut into micro-batches. Records give the
/// mean in either case.
enum class LossReduction : std::uint8_t { Mean, Sum };

/// Of one prediction: a sample, or a token of text.
enum class LossKind : std::uint8_t {
  CrossEntropy,
  MeanSquare,  ///< over all its numbers; a class is 1 at its place and 0 elsewhere
};

struct Recipe {
  LossKind loss = LossKind::CrossEntropy;
  LastBatch last_batch = LastBatch::Keep;
  LossReduction loss_reduction = LossReduction::Mean;
};

}  // namespace xpipe::executor::nn
