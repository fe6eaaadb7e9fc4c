#include "executor/torch/step_weights.h"

#include <algorithm>
#include <variant>

#include "ir/task.h"

namespace xpipe::executor::nn {

namespace {

using ir::index_of;

/// By stage, then mini-batch: it has a step. The last one always counts as one.
std::vector<std::vector<bool>> steps_of(const ir::Schedule& schedule) {
  std::vector<std::vector<bool>> steps(schedule.stages.size(),
                                       std::vector<bool>(schedule.mini_batches, false));
  for (const ir::Task& task : schedule.tasks) {
    if (const auto* step = std::get_if<ir::Step>(&task.payload)) {
      steps[index_of(task.stage)][index_of(step->mini_batch)] = true;
    }
  }
  for (std::vector<bool>& stage : steps) {
    stage.back() = true;
  }
  return steps;
}

/// Samples of the step that uses each mini-batch.
std::vector<std::uint64_t> samples_by_step(const std::vector<bool>& steps,
                                           const std::vector<std::uint32_t>& samples) {
  std::vector<std::uint64_t> sums(samples.size());
  std::size_t begin = 0;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    sum += samples[i];
    if (steps[i]) {
      std::fill(sums.begin() + static_cast<std::ptrdiff_t>(begin),
                sums.begin() + static_cast<std::ptrdiff_t>(i) + 1, sum);
      begin = i + 1;
      sum = 0;
    }
  }
  return sums;
}

}  // namespace

StepWeights::StepWeights(const ir::Schedule& schedule,
                         const std::vector<std::uint32_t>& samples,
                         LossReduction reduction) {
  if (schedule.mini_batches == 0) {
    return;
  }
  if (reduction == LossReduction::Sum) {
    reference_.assign(samples.size(), 1);
    return;
  }
  const std::vector<std::vector<bool>> steps = steps_of(schedule);
  reference_ = samples_by_step(steps.front(), samples);
  const bool alike = std::all_of(steps.begin(), steps.end(), [&](const std::vector<bool>& stage) {
    return stage == steps.front();
  });
  if (alike) {
    return;
  }
  const std::uint64_t common = *std::max_element(samples.begin(), samples.end());
  reference_.assign(samples.size(), common);
  for (const std::vector<bool>& stage : steps) {
    std::vector<double>& factors = factors_.emplace_back();
    factors.reserve(samples.size());
    for (const std::uint64_t sum : samples_by_step(stage, samples)) {
      factors.push_back(static_cast<double>(common) / static_cast<double>(sum));
    }
  }
}

}  // namespace xpipe::executor::nn
