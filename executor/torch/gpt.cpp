// gpt: a decoder-only transformer, one layer of the model a unit that a cut may stand between.
//
//   embedding  token + position (+ dropout)                 [samples, sequence, width]
//   block_i    x + proj(attention(norm(x)));  x + MLP(norm(x))
//   head       norm, linear to the vocabulary               [samples, sequence, vocabulary]
//
// Radford et al. 2019 (GPT-2): norms before attention and MLP, GELU, weights normal 0.02, those
// that end a residual branch by 1 / sqrt(2 layers) smaller, biases zero. Attention is causal,
// computed by LibTorch's scaled_dot_product_attention.
#include <cmath>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "executor/torch/built_in_models.h"
#include "executor/torch/dropout.h"
#include "executor/torch/ties.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

namespace {

constexpr double kDeviation = 0.02;

/// Dropout where there is any.
torch::nn::Sequential dropout_of(double probability, std::uint64_t layer) {
  torch::nn::Sequential module;
  if (probability > 0.0) {
    module->push_back(KeyedDropout(probability, layer));
  }
  return module;
}

torch::Tensor through(torch::nn::Sequential& dropout, const torch::Tensor& input) {
  return dropout->is_empty() ? input : dropout->forward(input);
}

torch::nn::LayerNorm norm_of(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

void draw(torch::nn::Linear& linear, double deviation, at::Generator& generator) {
  const torch::NoGradGuard no_grad;
  linear->weight.normal_(0.0, deviation, generator);
  linear->bias.zero_();
}

/// [samples, sequence] int64 -> [samples, sequence, width].
class EmbeddingImpl : public torch::nn::Module, public TieableWeight {
 public:
  EmbeddingImpl(const GptSizes& sizes,
                std::int64_t vocabulary,
                torch::nn::Sequential dropout,
                at::Generator& generator)
      : tokens_(register_parameter("tokens", torch::empty({vocabulary, sizes.width}))),
        positions_(register_parameter("positions", torch::empty({sizes.sequence, sizes.width}))),
        dropout_(register_module("dropout", std::move(dropout))) {
    const torch::NoGradGuard no_grad;
    tokens_.normal_(0.0, kDeviation, generator);
    positions_.normal_(0.0, kDeviation, generator);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor places = positions_.slice(0, 0, input.size(1));
    return through(dropout_, torch::embedding(tokens_, input) + places);
  }

  [[nodiscard]] const torch::Tensor& tieable_weight() const override { return tokens_; }

  void set_tieable_weight(torch::Tensor weight) override {
    parameters_["tokens"] = weight;
    tokens_ = std::move(weight);
  }

 private:
  torch::Tensor tokens_;     ///< [vocabulary, width]
  torch::Tensor positions_;  ///< [sequence, width]
  torch::nn::Sequential dropout_;
};

TORCH_MODULE(Embedding);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const GptSizes& sizes, std::uint64_t layer, at::Generator& generator)
      : heads_(sizes.heads),
        norm_1_(register_module("norm_1", norm_of(sizes.width))),
        norm_2_(register_module("norm_2", norm_of(sizes.width))),
        qkv_(register_module("qkv", torch::nn::Linear(sizes.width, 3 * sizes.width))),
        proj_(register_module("proj", torch::nn::Linear(sizes.width, sizes.width))),
        up_(register_module("up", torch::nn::Linear(sizes.width, 4 * sizes.width))),
        down_(register_module("down", torch::nn::Linear(4 * sizes.width, sizes.width))),
        dropout_1_(register_module("dropout_1", dropout_of(sizes.dropout, 2 * layer))),
        dropout_2_(register_module("dropout_2", dropout_of(sizes.dropout, 2 * layer + 1))) {
    const double of_branch = kDeviation / std::sqrt(2.0 * static_cast<double>(sizes.layers));
    draw(qkv_, kDeviation, generator);
    draw(proj_, of_branch, generator);
    draw(up_, kDeviation, generator);
    draw(down_, of_branch, generator);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor middle =
        input + through(dropout_1_, proj_->forward(attention(norm_1_->forward(input))));
    const torch::Tensor wide = torch::gelu(up_->forward(norm_2_->forward(middle)));
    return middle + through(dropout_2_, down_->forward(wide));
  }

 private:
  /// [samples, sequence, width], each head on its share of the width.
  torch::Tensor attention(const torch::Tensor& input) {
    const std::int64_t samples = input.size(0);
    const std::int64_t sequence = input.size(1);
    const std::int64_t width = input.size(2);
    const torch::Tensor qkv = qkv_->forward(input)
                                  .view({samples, sequence, 3, heads_, width / heads_})
                                  .permute({2, 0, 3, 1, 4});
    return torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true)
        .transpose(1, 2)
        .reshape({samples, sequence, width});
  }

  std::int64_t heads_;
  torch::nn::LayerNorm norm_1_;
  torch::nn::LayerNorm norm_2_;
  torch::nn::Linear qkv_;
  torch::nn::Linear proj_;
  torch::nn::Linear up_;
  torch::nn::Linear down_;
  torch::nn::Sequential dropout_1_;
  torch::nn::Sequential dropout_2_;
};

TORCH_MODULE(Block);

/// [samples, sequence, width] -> [samples, sequence, vocabulary]. A head that is tied to the
/// embedding has no bias.
class HeadImpl : public torch::nn::Module, public TieableWeight {
 public:
  HeadImpl(const GptSizes& sizes, std::int64_t vocabulary, at::Generator& generator)
      : weight_(register_parameter("weight", torch::empty({vocabulary, sizes.width}))) {
    const torch::NoGradGuard no_grad;
    weight_.normal_(0.0, kDeviation, generator);
    if (!sizes.tie) {
      bias_ = register_parameter("bias", torch::zeros({vocabulary}));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) { return torch::linear(input, weight_, bias_); }

  [[nodiscard]] const torch::Tensor& tieable_weight() const override { return weight_; }

  void set_tieable_weight(torch::Tensor weight) override {
    parameters_["weight"] = weight;
    weight_ = std::move(weight);
  }

 private:
  torch::Tensor weight_;  ///< [vocabulary, width]
  torch::Tensor bias_;
};

TORCH_MODULE(Head);

std::uint64_t numbers(std::initializer_list<std::int64_t> factors) {
  std::uint64_t product = 1;
  for (const std::int64_t factor : factors) {
    product *= static_cast<std::uint64_t>(factor);
  }
  return product;
}

}  // namespace

Model gpt(const GptSizes& sizes, std::int64_t vocabulary, std::uint64_t seed) {
  XPIPE_CHECK(sizes.width % sizes.heads == 0) << sizes.width << " over " << sizes.heads;
  Model model;
  model.name = "gpt";
  const std::int64_t s = sizes.sequence;
  const std::int64_t w = sizes.width;
  const auto add = [&model](std::string name, torch::nn::Sequential module, std::uint64_t macs,
                            std::int64_t output_size) {
    model.layers.push_back({.name = std::move(name),
                            .module = std::move(module),
                            .macs = macs,
                            .output_size = output_size});
  };
  const auto generator = [&] {
    return at::make_generator<at::CPUGeneratorImpl>(layer_seed(seed, model.layers.size()));
  };
  // Dropouts are told apart by numbers of their own: a block has two.
  const auto layer = [&] { return static_cast<std::uint64_t>(model.layers.size()); };
  {
    at::Generator random = generator();
    Embedding embedding(sizes, vocabulary, dropout_of(sizes.dropout, 2 * layer()), random);
    add("embedding", torch::nn::Sequential(embedding), numbers({s, w}), s * w);
  }
  for (std::int64_t i = 1; i <= sizes.layers; ++i) {
    at::Generator random = generator();
    Block block(sizes, layer(), random);
    // qkv 3 w, proj w, up 4 w, down 4 w a number; a token attends to half of the others on average,
    // and LibTorch computes all of them: scores and their sum.
    add("block" + std::to_string(i), torch::nn::Sequential(block),
        numbers({s, 12, w, w}) + numbers({2, s, s, w}), s * w);
  }
  at::Generator random = generator();
  Head head(sizes, vocabulary, random);
  add("head", torch::nn::Sequential(norm_of(sizes.width), head), numbers({s, w, vocabulary}),
      s * vocabulary);
  if (sizes.tie) {
    const auto& embedding = model.layers.front().module->at<EmbeddingImpl>(0);
    head->set_tieable_weight(embedding.tieable_weight());
    // Behind the norm's two.
    model.ties.push_back(
        {{.layer = 0, .parameter = 0}, {.layer = model.layers.size() - 1, .parameter = 2}});
  }
  return model;
}

}  // namespace xpipe::executor::nn
