#include "scheduler/optimizer_state.h"

#include <array>

#include "ir/status.h"

namespace xpipe::scheduler {

namespace {

constexpr std::array kAllOptimizers = {OptimizerKind::Sgd, OptimizerKind::SgdMomentum,
                                       OptimizerKind::Adam, OptimizerKind::AdamW,
                                       OptimizerKind::RmsProp};

/// Whether the last gradient is part of the direction of a prediction.
bool predicts_from_gradient(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::Sgd:
    case OptimizerKind::RmsProp:
      return true;
    case OptimizerKind::SgdMomentum:
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      return false;
  }
  XPIPE_CHECK(false) << "an optimizer of no kind";
  return false;
}

}  // namespace

std::string_view optimizer_name(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::Sgd:
      return "sgd";
    case OptimizerKind::SgdMomentum:
      return "sgd-momentum";
    case OptimizerKind::Adam:
      return "adam";
    case OptimizerKind::AdamW:
      return "adamw";
    case OptimizerKind::RmsProp:
      return "rmsprop";
  }
  return "unknown";
}

std::optional<OptimizerKind> optimizer_of_name(std::string_view name) {
  for (const OptimizerKind optimizer : kAllOptimizers) {
    if (optimizer_name(optimizer) == name) {
      return optimizer;
    }
  }
  return std::nullopt;
}

std::uint32_t optimizer_copies(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::SgdMomentum:
    case OptimizerKind::RmsProp:
      return 1;
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      return 2;
  }
  XPIPE_CHECK(false) << "an optimizer of no kind";
  return 0;
}

std::uint32_t copies_touched_by_step(OptimizerKind optimizer) {
  return 3 + 2 * optimizer_copies(optimizer);
}

std::uint32_t copies_kept_for_predict(OptimizerKind optimizer, Extrapolation extrapolation) {
  if (extrapolation == Extrapolation::SmoothedGradient) {
    return optimizer == OptimizerKind::SgdMomentum ? 0 : 1;
  }
  return predicts_from_gradient(optimizer) ? 1 : 0;
}

std::uint32_t copies_touched_by_predict(OptimizerKind optimizer, Extrapolation extrapolation) {
  if (extrapolation == Extrapolation::SmoothedGradient) {
    return 3;
  }
  return 2 + optimizer_copies(optimizer) + copies_kept_for_predict(optimizer, extrapolation);
}

}  // namespace xpipe::scheduler
