// How a training steps: what becomes of the samples that are left at the end of an epoch, and what
// a mini-batch's loss is. Plain values, no torch.
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

struct Recipe {
  LastBatch last_batch = LastBatch::Keep;
  LossReduction loss_reduction = LossReduction::Mean;
};

}  // namespace xpipe::executor::nn
