#include "app/train_data_arguments.h"

#include "app/arguments.h"
#include <fmt/format.h>

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

}  // namespace

void add_train_data_options(CLI::App& command, TrainDataArguments& arguments) {
  command
      .add_option("--augment", arguments.augment,
                  "what happens to training images: crop (out of 4 pixels of padding), flip")
      ->delimiter(',')
      ->type_name("crop,flip");
  one_of(command, "--tokens", arguments.tokens, {"characters", "bytes"},
         "what a token of a text is");
  whole_number(
      command, "--image-size", arguments.image_size, 1, 4096,
      "class folders: scale and cut images to so many pixels a side (default: as they are)");
}

ir::Result<nn::DataOptions> data_options(const TrainDataArguments& arguments) {
  nn::DataOptions options;
  for (const std::string& name : arguments.augment) {
    bool& asked = name == "crop" ? options.augmentations.crop : options.augmentations.flip;
    if (name != "crop" && name != "flip") {
      return ir::make_error(ir::ErrorKind::Usage, "options", "--augment",
                            fmt::format("found '{}', expected crop, flip or crop,flip", name));
    }
    if (asked) {
      return ir::make_error(ir::ErrorKind::Usage, "options", "--augment",
                            fmt::format("names {} twice", name));
    }
    asked = true;
  }
  options.tokens = arguments.tokens == "bytes" ? nn::TextTokens::Bytes : nn::TextTokens::Characters;
  options.image_size = arguments.image_size;
  return options;
}

}  // namespace xpipe::app
