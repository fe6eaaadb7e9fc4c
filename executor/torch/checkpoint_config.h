// What a training is asked to keep and to go on from. Plain values, no torch.
#pragma once

#include <cstdint>
#include <string>

namespace xpipe::executor::nn {

struct CheckpointConfig {
  std::string folder;                    ///< that checkpoints are written to; empty: none are
  std::uint32_t every_mini_batches = 0;  ///< of the run; 0: by epochs
  std::uint32_t every_epochs = 0;        ///< without every_mini_batches; the end always has one.
                                         ///< Both 0: as the run that is resumed, or every epoch
  std::uint32_t keep = 3;                ///< the newest ones that stay
  std::string resume;                    ///< a checkpoint or a folder of them; empty: begin anew
  bool force = false;       ///< take a folder that holds another run, or other settings
  std::string export_file;  ///< gets the trained weights; empty: nothing does
};

}  // namespace xpipe::executor::nn
