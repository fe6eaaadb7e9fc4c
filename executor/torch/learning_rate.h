// Learning rates that follow a schedule. A rate is a function of the steps made before it and of
// nothing else, so that a resumed training and a prediction of later steps know it, too. No torch.
//
//   warm_up = 4, step_every = 6, gamma = 0.1           warm_up = 4, cosine over total = 20
//       _______                                            __
//      /       |______                                    /   \_
//     /               |______                            /      \___
//     0   4    10     16     22   step                   0   4          20   step
#pragma once

#include <cstdint>
#include <string_view>

namespace xpipe::executor::nn {

enum class LearningRateShape : std::uint8_t { Constant, Step, Cosine };

/// r is the rate of step t (from 0) over the optimizer's own; u = t - warm_up:
///   t < warm_up   r = (t + 1) / warm_up
///   Constant      r = 1
///   Step          r = gamma ^ floor(u / step_every)
///   Cosine        r = (1 + cos(pi u / (total - warm_up))) / 2 for t < total, then 0
/// Source of Cosine: Loshchilov and Hutter, SGDR, ICLR'17, equation 5, without restarts.
struct LearningRateSchedule {
  LearningRateShape shape = LearningRateShape::Constant;
  std::uint64_t warm_up = 0;     ///< steps
  std::uint64_t step_every = 0;  ///< steps; Step
  double gamma = 0.1;            ///< Step
  std::uint64_t total = 0;       ///< steps; Cosine. 0: as many as the training makes

  bool operator==(const LearningRateSchedule&) const = default;
};

/// The rate of the step that follows `steps_made` steps.
/// Requires: step_every > 0 for Step; total > warm_up for Cosine.
[[nodiscard]] double learning_rate_at(double base,
                                      const LearningRateSchedule& schedule,
                                      std::uint64_t steps_made);

/// The sum of the rates of the next `count` steps.
[[nodiscard]] double learning_rate_sum(double base,
                                       const LearningRateSchedule& schedule,
                                       std::uint64_t steps_made,
                                       std::uint32_t count);

/// "constant", "step", "cosine".
[[nodiscard]] std::string_view learning_rate_shape_name(LearningRateShape shape);

}  // namespace xpipe::executor::nn
