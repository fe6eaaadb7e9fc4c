#include "app/train_recipe_arguments.h"

#include "app/arguments.h"

namespace xpipe::app {

void add_recipe_options(CLI::App& command, RecipeArguments& arguments) {
  one_of(command, "--last-batch", arguments.last_batch, {"keep", "drop"},
         "of an epoch, where its samples do not fill it: trained as the mean over those it has, or "
         "left out");
}

executor::nn::Recipe recipe_of(const RecipeArguments& arguments) {
  executor::nn::Recipe recipe;
  recipe.last_batch = arguments.last_batch == "drop" ? executor::nn::LastBatch::Drop
                                                     : executor::nn::LastBatch::Keep;
  return recipe;
}

}  // namespace xpipe::app
