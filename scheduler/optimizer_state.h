// What an optimizer keeps and touches, in copies of the parameters: all that costs and memory need
// to know of it. The arithmetic of updates and predictions is executor/torch's.
//
//              state O   step touches     predict touches
//   sgd        0         3 P              3 P         P bytes of parameters; a step reads W, the
//   momentum   P         3 P + 2 O        2 P + O     gradient and the state, and writes W and the
//   adam(w)    2 P       3 P + 2 O        2 P + O     state; a prediction reads W and what gives
//   the rmsprop    P         3 P + 2 O        3 P + O     direction (methods.md 1.4: the state, and
//   the
//                                                     last gradient for sgd and rmsprop), and
//                                                     writes the copy; a stash reads W, writes it
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

/// Copies that one step, one prediction and one stash read and write.
[[nodiscard]] std::uint32_t copies_touched_by_step(OptimizerKind optimizer);
[[nodiscard]] std::uint32_t copies_touched_by_predict(OptimizerKind optimizer);
inline constexpr std::uint32_t kCopiesTouchedByStash = 2;

}  // namespace xpipe::scheduler
