#include "executor/torch/learning_rate.h"

#include <cmath>
#include <numbers>

namespace xpipe::executor::nn {

double learning_rate_at(double base,
                        const LearningRateSchedule& schedule,
                        std::uint64_t steps_made) {
  if (steps_made < schedule.warm_up) {
    return base * static_cast<double>(steps_made + 1) / static_cast<double>(schedule.warm_up);
  }
  const std::uint64_t after = steps_made - schedule.warm_up;
  switch (schedule.shape) {
    case LearningRateShape::Constant:
      return base;
    case LearningRateShape::Step:
      return base * std::pow(schedule.gamma, static_cast<double>(after / schedule.step_every));
    case LearningRateShape::Cosine: {
      if (steps_made >= schedule.total) {
        return 0.0;
      }
      const double share =
          static_cast<double>(after) / static_cast<double>(schedule.total - schedule.warm_up);
      return base * (1.0 + std::cos(std::numbers::pi * share)) / 2.0;
    }
  }
  return base;
}

double learning_rate_sum(double base,
                         const LearningRateSchedule& schedule,
                         std::uint64_t steps_made,
                         std::uint32_t count) {
  if (schedule.shape == LearningRateShape::Constant && steps_made >= schedule.warm_up) {
    return count * base;
  }
  double sum = 0.0;
  for (std::uint32_t step = 0; step < count; ++step) {
    sum += learning_rate_at(base, schedule, steps_made + step);
  }
  return sum;
}

std::string_view learning_rate_shape_name(LearningRateShape shape) {
  switch (shape) {
    case LearningRateShape::Constant:
      return "constant";
    case LearningRateShape::Step:
      return "step";
    case LearningRateShape::Cosine:
      return "cosine";
  }
  return "";
}

}  // namespace xpipe::executor::nn
