// How data are read, whatever they are: what `xpipe train` lets its user say of them. No torch.
#pragma once

#include <cstdint>

#include "executor/torch/augment.h"
#include "executor/torch/text_corpus.h"

namespace xpipe::executor::nn {

struct DataOptions {
  Augmentations augmentations;  ///< of the training images
  TextTokens tokens = TextTokens::Characters;
  std::uint32_t image_size =
      0;  ///< class folders: scaled and cut to so many pixels a side; 0: as is
};

}  // namespace xpipe::executor::nn
