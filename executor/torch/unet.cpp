#include <string>
#include <utility>
#include <vector>

#include "executor/torch/built_in_models.h"
#include "executor/torch/model_builder.h"

namespace xpipe::executor::nn {

namespace {

/// Two convolutions 3x3 that keep the size, each with a ReLU.
void two_convolutions(Chain& chain, std::int64_t channels) {
  for (int i = 0; i < 2; ++i) {
    chain.conv_relu(square(channels, 3, 1, 1), Init::FanInNormal);
  }
}

}  // namespace

Model unet(const SampleShape& input,
           std::int64_t classes,
           std::uint64_t seed,
           std::int64_t width,
           std::int64_t depth) {
  ModelBuilder builder("unet", input, seed);
  std::vector<std::size_t> left;  // the layers of the left arm, from the top
  for (std::int64_t level = 0; level <= depth; ++level) {
    Chain chain = builder.next();
    if (level > 0) {
      chain.max_pool(2, 2, 0, false);
    }
    two_convolutions(chain, width << level);
    left.push_back(builder.index());
    builder.add(level < depth ? "down" + std::to_string(level) : "bottom", chain);
  }
  for (std::int64_t level = depth; level-- > 0;) {
    Chain up = builder.next();
    up.upsample(2);
    up.conv_relu(square(width << level, 3, 1, 1), Init::FanInNormal);
    builder.add("up" + std::to_string(level), up);
    builder.skip(left[static_cast<std::size_t>(level)], Join::Concatenate);
    Chain merge = builder.next();
    two_convolutions(merge, width << level);
    builder.add("merge" + std::to_string(level), merge);
  }
  Chain head = builder.next();
  head.average_pool_to(1);
  head.linear(classes, Init::FanInUniform);
  builder.add("head", head);
  return std::move(builder).take();
}

}  // namespace xpipe::executor::nn
