#include <array>
#include <string>
#include <utility>

#include "executor/torch/built_in_models.h"
#include "executor/torch/model_builder.h"

namespace xpipe::executor::nn {

namespace {

constexpr double kResNetEps = 1e-5;     ///< of torch's batch norm
constexpr std::int64_t kExpansion = 4;  ///< a bottleneck's output over its width
constexpr std::int64_t kResNetSmallImage = 64;

void resnet_conv(Chain& chain, const ConvSpec& spec, bool relu) {
  chain.conv_batch_norm(spec, Init::FanOutNormal, kResNetEps, relu);
}

Chain stem(const ModelBuilder& builder, bool is_small) {
  Chain chain = builder.next();
  if (is_small) {
    resnet_conv(chain, square(64, 3, 1, 1), true);
  } else {
    resnet_conv(chain, square(64, 7, 2, 3), true);
    chain.max_pool(3, 2, 1, false);
  }
  return chain;
}

/// 1x1 down to `width`, 3x3 with the stride, 1x1 up; the shortcut is a 1x1 convolution where the
/// shape changes.
Chain bottleneck(const ModelBuilder& builder, std::int64_t width, std::int64_t stride) {
  Chain chain = builder.next();
  Chain main = chain.branch();
  resnet_conv(main, square(width, 1), true);
  resnet_conv(main, square(width, 3, stride, 1), true);
  resnet_conv(main, square(width * kExpansion, 1), false);
  Chain shortcut = chain.branch();
  if (stride != 1 || chain.shape().channels != width * kExpansion) {
    resnet_conv(shortcut, square(width * kExpansion, 1, stride), false);
  }
  chain.residual(main, shortcut);
  return chain;
}

}  // namespace

Model resnet(const std::string& name,
             const std::array<int, 4>& blocks,
             const SampleShape& input,
             std::int64_t classes,
             std::uint64_t seed) {
  ModelBuilder builder(name, input, seed);
  builder.add("stem", stem(builder, input.height <= kResNetSmallImage));
  std::int64_t width = 64;
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    for (int block = 0; block < blocks[group]; ++block) {
      const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
      builder.add("layer" + std::to_string(group + 1) + "." + std::to_string(block),
                  bottleneck(builder, width, stride));
    }
    width *= 2;
  }
  Chain head = builder.next();
  head.average_pool_to(1);
  head.flatten();
  head.linear(classes, Init::FanInUniform);
  builder.add("fc", head);
  return std::move(builder).take();
}

}  // namespace xpipe::executor::nn
