// What an optimizer keeps and touches, in copies of the parameters: all that costs and memory need
// to know of it. The arithmetic of updates and predictions is executor/torch's.
//
//             state O   step touches   predict touches   kept for predictions
//   sgd         0         3 P            3 P             P
//   momentum    P         3 P + 2 O      2 P + O         0
//   adam(w)     2 P       3 P + 2 O      2 P + O         0
//   rmsprop     P         3 P + 2 O      3 P + O         P
//   any, smoothed gradient               3 P             P, but for momentum 0
//
// P bytes of parameters. A step reads W, the gradient and the state, and writes W and the state; a
// prediction reads W and what gives the direction (methods.md 1.4: the state, and the last gradient
// for sgd and rmsprop), and writes the copy; a stash reads W and writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xpipe::scheduler {

enum class OptimizerKind : std::uint8_t {
  Sgd,
  SgdMomentum,
  Adam,
  AdamW,
  RmsProp,
};

/// "sgd", "sgd-momentum", "adam", "adamw", "rmsprop".
[[nodiscard]] std::string_view optimizer_name(OptimizerKind optimizer);

/// The inverse of optimizer_name().
[[nodiscard]] std::optional<OptimizerKind> optimizer_of_name(std::string_view name);

/// O, in copies of the parameters.
[[nodiscard]] std::uint32_t optimizer_copies(OptimizerKind optimizer);

/// What a prediction extrapolates.
enum class Extrapolation : std::uint8_t {
  OptimizerStep,     ///< the optimizer's own step (XPipe; methods.md 1.4)
  SmoothedGradient,  ///< SGD's momentum buffer where there is one, else a moving average of its own
                     ///< (SpecTrain; methods.md 2, design.md §5)
};

/// Copies that a stage which predicts keeps beside O: the last gradient of sgd and rmsprop, or the
/// moving average of the gradient.
[[nodiscard]] std::uint32_t copies_kept_for_predict(OptimizerKind optimizer,
                                                    Extrapolation extrapolation);

/// Copies that one step, one prediction and one stash read and write.
[[nodiscard]] std::uint32_t copies_touched_by_step(OptimizerKind optimizer);
[[nodiscard]] std::uint32_t copies_touched_by_predict(OptimizerKind optimizer,
                                                      Extrapolation extrapolation);
inline constexpr std::uint32_t kCopiesTouchedByStash = 2;
/// Gradients read for their norm, then read and written.
inline constexpr std::uint32_t kCopiesTouchedByClip = 3;

}  // namespace xpipe::scheduler
