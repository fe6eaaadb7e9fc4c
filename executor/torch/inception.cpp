// Inception-v3, block by block with torchvision's names and sizes. Every block is one layer.
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/built_in_models.h"
#include "executor/torch/model_builder.h"

namespace xpipe::executor::nn {

namespace {

constexpr double kInceptionEps = 1e-3;
constexpr std::int64_t kInceptionSmallImage = 64;

void inception_conv(Chain& chain, const ConvSpec& spec) {
  chain.conv_batch_norm(spec, Init::Normal01, kInceptionEps, true);
}

/// 1 x `length` and `length` x 1, padded to keep the size.
ConvSpec row(std::int64_t channels, std::int64_t length) {
  return {channels, 1, length, 1, 0, length / 2};
}

ConvSpec column(std::int64_t channels, std::int64_t length) {
  return {channels, length, 1, 1, length / 2, 0};
}

Chain through(const Chain& from, const std::vector<ConvSpec>& specs) {
  Chain chain = from.branch();
  for (const ConvSpec& spec : specs) {
    inception_conv(chain, spec);
  }
  return chain;
}

Chain pooled(const Chain& from, std::int64_t channels) {
  Chain chain = from.branch();
  chain.average_pool(3, 1, 1);
  inception_conv(chain, square(channels, 1));
  return chain;
}

Chain max_pooled(const Chain& from) {
  Chain chain = from.branch();
  chain.max_pool(3, 2, 0, false);
  return chain;
}

Chain inception_a(Chain chain, std::int64_t pool_channels) {
  chain.concat({through(chain, {square(64, 1)}),
                through(chain, {square(48, 1), square(64, 5, 1, 2)}),
                through(chain, {square(64, 1), square(96, 3, 1, 1), square(96, 3, 1, 1)}),
                pooled(chain, pool_channels)});
  return chain;
}

Chain inception_b(Chain chain) {
  chain.concat({through(chain, {square(384, 3, 2)}),
                through(chain, {square(64, 1), square(96, 3, 1, 1), square(96, 3, 2)}),
                max_pooled(chain)});
  return chain;
}

Chain inception_c(Chain chain, std::int64_t width) {
  chain.concat({through(chain, {square(192, 1)}),
                through(chain, {square(width, 1), row(width, 7), column(192, 7)}),
                through(chain, {square(width, 1), column(width, 7), row(width, 7), column(width, 7),
                                row(192, 7)}),
                pooled(chain, 192)});
  return chain;
}

Chain inception_d(Chain chain) {
  chain.concat({through(chain, {square(192, 1), square(320, 3, 2)}),
                through(chain, {square(192, 1), row(192, 7), column(192, 7), square(192, 3, 2)}),
                max_pooled(chain)});
  return chain;
}

/// 1x3 and 3x1 side by side.
void split_3x3(Chain& chain) {
  chain.concat({through(chain, {row(384, 3)}), through(chain, {column(384, 3)})});
}

Chain inception_e(Chain chain) {
  Chain narrow = through(chain, {square(384, 1)});
  split_3x3(narrow);
  Chain deep = through(chain, {square(448, 1), square(384, 3, 1, 1)});
  split_3x3(deep);
  chain.concat({through(chain, {square(320, 1)}), narrow, deep, pooled(chain, 192)});
  return chain;
}

/// The five convolutions (and two poolings) before the first block; on small images without
/// strides and pooling, padded, so that the blocks get images of the input's size.
void add_stem(ModelBuilder& builder, bool is_small) {
  const std::int64_t stride = is_small ? 1 : 2;
  const std::int64_t padding = is_small ? 1 : 0;
  const auto add = [&builder](const char* name, const ConvSpec& spec) {
    Chain chain = builder.next();
    inception_conv(chain, spec);
    builder.add(name, chain);
  };
  const auto add_pool = [&builder, is_small](const char* name) {
    if (!is_small) {
      builder.add(name, max_pooled(builder.next()));
    }
  };
  add("Conv2d_1a_3x3", square(32, 3, stride, padding));
  add("Conv2d_2a_3x3", square(32, 3, 1, padding));
  add("Conv2d_2b_3x3", square(64, 3, 1, 1));
  add_pool("maxpool1");
  add("Conv2d_3b_1x1", square(80, 1));
  add("Conv2d_4a_3x3", square(192, 3, 1, padding));
  add_pool("maxpool2");
}

}  // namespace

Model inception_v3(const SampleShape& input, std::int64_t classes, std::uint64_t seed) {
  ModelBuilder builder("inception_v3", input, seed);
  add_stem(builder, input.height <= kInceptionSmallImage);
  builder.add("Mixed_5b", inception_a(builder.next(), 32));
  builder.add("Mixed_5c", inception_a(builder.next(), 64));
  builder.add("Mixed_5d", inception_a(builder.next(), 64));
  builder.add("Mixed_6a", inception_b(builder.next()));
  builder.add("Mixed_6b", inception_c(builder.next(), 128));
  builder.add("Mixed_6c", inception_c(builder.next(), 160));
  builder.add("Mixed_6d", inception_c(builder.next(), 160));
  builder.add("Mixed_6e", inception_c(builder.next(), 192));
  builder.add("Mixed_7a", inception_d(builder.next()));
  builder.add("Mixed_7b", inception_e(builder.next()));
  builder.add("Mixed_7c", inception_e(builder.next()));
  constexpr double kDropout = 0.5;
  Chain head = builder.next();
  head.average_pool_to(1);
  head.flatten();
  head.dropout(kDropout, builder.index());
  head.linear(classes, Init::Normal01);
  builder.add("fc", head);
  return std::move(builder).take();
}

}  // namespace xpipe::executor::nn
