// The profile as JSON (`"format": "xpipe.profile"`), read and written:
//
//   {"format": "xpipe.profile", "version": 1,
//    "name": "vgg16",                      optional
//    "provenance": "measured on ...",      optional
//    "samples": 64,                        the batch that all times and bytes are for
//    "data_loading_us": 1500,              optional
//    "layers": [{"name": "conv1", "forward_us": 12.5, "backward_us": 25,
//                "output_bytes": 4096, "saved_bytes": 4096, "parameter_bytes": 1728}, ...],
//    "edges": [["conv1", "relu1"], ...]}   by name; without it the layers are a chain
//
// In place of backward_us a layer may have backward_input_us and backward_weight_us, beside
// saved_bytes saved_for_weight_bytes (without it: all of saved_bytes), and workspace_bytes (none:
// 0).
// samples_us, the measurements that the medians were made of, is checked and left out.
// update_us: one optimizer step on the layer's parameters (none: not measured). Times are decimal
// microseconds; more than three decimals are rounded half up to a nanosecond.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/profile.h"
#include "ir/status.h"

namespace xpipe::ir {

/// What is missing is an error, never zero. Errors: BadInput, every fault with its JSON path, or
/// line and column where it is not JSON.
[[nodiscard]] Result<Profile> profile_from_json(std::string_view text, std::string_view file);

/// One layer's measurements, in the order in which they were taken.
struct LayerSamples {
  std::vector<Nanos> forward;
  std::vector<Nanos> backward;        ///< whole
  std::vector<Nanos> backward_input;  ///< the input's gradient alone
  std::vector<Nanos> update;
};

/// The same profile gives the same bytes. Reading it back gives an equal profile. `samples`: by
/// layer; none are written where it is empty.
[[nodiscard]] std::string profile_to_json(const Profile& profile,
                                          const std::vector<LayerSamples>& samples = {});

}  // namespace xpipe::ir
