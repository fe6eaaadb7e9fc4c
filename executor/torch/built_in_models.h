// The built-in models, each in the file of its family. Every `input` has passed the model's own
// check (built_in_models.cpp); `classes` is the width of the last layer.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "executor/torch/model.h"

namespace xpipe::executor::nn {

/// Flatten; depth x (linear hidden, ReLU); linear classes. Flatten belongs to the first.
[[nodiscard]] Model mlp(const SampleShape& input,
                        std::int64_t classes,
                        std::uint64_t seed,
                        std::int64_t hidden,
                        std::int64_t depth);

/// LeCun et al. 1998 with ReLU and max pooling: conv 6 5x5 (28x28: padded by 2), pool, conv 16 5x5,
/// pool, flatten, 120, 84, classes.
[[nodiscard]] Model lenet5(const SampleShape& input, std::int64_t classes, std::uint64_t seed);

/// Simonyan and Zisserman 2015, configuration D: 13 convolutions 3x3 with ReLU, 5 poolings. Up to
/// 32x32 without dropout and with linear layers of 512, 512, classes (the workload W1 of bench/;
/// pooling rounds sizes up, so that 28x28 fits); larger images as torchvision's vgg16: average
/// pooling to 7x7, linear 4096, 4096, classes with dropout 0.5.
[[nodiscard]] Model vgg16(const SampleShape& input, std::int64_t classes, std::uint64_t seed);

/// He et al. 2016, bottleneck blocks of `blocks` in four groups, the stride on the 3x3 convolution
/// as in torchvision. Up to 64x64 the stem is one 3x3 convolution without pooling.
[[nodiscard]] Model resnet(const std::string& name,
                           const std::array<int, 4>& blocks,
                           const SampleShape& input,
                           std::int64_t classes,
                           std::uint64_t seed);

/// Szegedy et al. 2016 as in torchvision with aux_logits=False. Up to 64x64 the stem keeps the
/// image's size: no strides, no pooling, padded convolutions.
[[nodiscard]] Model inception_v3(const SampleShape& input,
                                 std::int64_t classes,
                                 std::uint64_t seed);

/// Ronneberger et al. 2015, padded, for classes: `depth` levels of two convolutions 3x3 of `width`
/// channels, twice as many a level, down by max pooling; up again by nearest-neighbour upsampling
/// and a convolution, joined by channel with the level's output on the way down, and two
/// convolutions; average pooling, linear. Layers: down0 ... bottom ... up0 merge0 head; a skip from
/// each down to its merge.
[[nodiscard]] Model unet(const SampleShape& input,
                         std::int64_t classes,
                         std::uint64_t seed,
                         std::int64_t width,
                         std::int64_t depth);

struct GptSizes {
  std::int64_t layers = 8;
  std::int64_t width = 256;
  std::int64_t heads = 4;  ///< divides the width
  std::int64_t sequence = 128;
  bool tie = false;  ///< the head's weight is the embedding's of tokens, without bias
  double dropout = 0.0;
};

/// Radford et al. 2019: token and position embedding, pre-norm blocks of causal attention and a
/// GELU MLP of 4 widths, final norm and linear head; layers + 2 layers of the model. The defaults
/// with a vocabulary of 1000 are the workload W2 of bench/.
[[nodiscard]] Model gpt(const GptSizes& sizes, std::int64_t vocabulary, std::uint64_t seed);

}  // namespace xpipe::executor::nn
