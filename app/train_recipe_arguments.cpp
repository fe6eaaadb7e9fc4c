#include "app/train_recipe_arguments.h"

#include <utility>

#include "app/arguments.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

}  // namespace

void add_recipe_options(CLI::App& command, RecipeArguments& arguments) {
  one_of(command, "--last-batch", arguments.last_batch, {"keep", "drop"},
         "of an epoch, where its samples do not fill it: trained as the mean over those it has, or "
         "left out");
  one_of(command, "--loss", arguments.loss, {"cross-entropy", "mse"},
         "mse: the mean square over a prediction's numbers, the right class being 1 and the others "
         "0");
  one_of(command, "--loss-reduction", arguments.loss_reduction, {"mean", "sum"},
         "over the samples of a mini-batch, however it is cut");
  one_of(command, "--lr-schedule", arguments.lr_schedule, {"constant", "step", "cosine"},
         "of the learning rate; --lr is its start");
  whole_number(command, "--warm-up", arguments.warm_up, 0, 1U << 30,
               "steps over which the rate rises to --lr (default 0)");
  whole_number(command, "--lr-step-every", arguments.step_every, 1, 1U << 30,
               "of --lr-schedule step: steps from one rate to the next");
  real_number(command, "--lr-gamma", arguments.gamma, 0.0, 1e6,
              "of --lr-schedule step: what the rate is multiplied by (default 0.1)");
  whole_number(command, "--lr-total-steps", arguments.total_steps, 1, 0xffffffffU,
               "of --lr-schedule cosine: where the rate is 0 (default: the training's end)");
}

nn::Recipe recipe_of(const RecipeArguments& arguments) {
  nn::Recipe recipe;
  recipe.last_batch = arguments.last_batch == "drop" ? nn::LastBatch::Drop : nn::LastBatch::Keep;
  recipe.loss = arguments.loss == "mse" ? nn::LossKind::MeanSquare : nn::LossKind::CrossEntropy;
  recipe.loss_reduction =
      arguments.loss_reduction == "sum" ? nn::LossReduction::Sum : nn::LossReduction::Mean;
  return recipe;
}

ir::Result<nn::LearningRateSchedule> learning_rate_schedule_of(const RecipeArguments& arguments) {
  nn::LearningRateSchedule schedule;
  schedule.warm_up = arguments.warm_up.value_or(0);
  const bool step = arguments.lr_schedule == "step";
  const bool cosine = arguments.lr_schedule == "cosine";
  if (!step && (arguments.step_every || arguments.gamma)) {
    return usage(arguments.step_every ? "--lr-step-every" : "--lr-gamma",
                 "has no effect without --lr-schedule step");
  }
  if (!cosine && arguments.total_steps) {
    return usage("--lr-total-steps", "has no effect without --lr-schedule cosine");
  }
  if (step) {
    if (!arguments.step_every) {
      return usage("--lr-schedule", "step needs --lr-step-every N, in steps");
    }
    schedule.shape = nn::LearningRateShape::Step;
    schedule.step_every = *arguments.step_every;
    schedule.gamma = arguments.gamma.value_or(schedule.gamma);
  }
  if (cosine) {
    schedule.shape = nn::LearningRateShape::Cosine;
    schedule.total = arguments.total_steps.value_or(0);
  }
  return schedule;
}

}  // namespace xpipe::app
