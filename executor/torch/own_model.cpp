#include "executor/torch/own_model.h"

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "executor/torch/dropout.h"
#include "executor/torch/layer_check.h"
#include "executor/torch/pass_graph.h"

namespace xpipe::executor::nn {

namespace {

/// What a net held when it was handed over.
class InitialState {
 public:
  explicit InitialState(const torch::nn::Sequential& net)
      : parameters_(net->parameters()), buffers_(net->buffers()) {
    for (const torch::Tensor& parameter : parameters_) {
      first_parameters_.push_back(parameter.detach().clone());
    }
    for (const torch::Tensor& buffer : buffers_) {
      first_buffers_.push_back(buffer.detach().clone());
    }
  }

  /// Parameters get memory of their own, since a training before this one keeps its weights.
  void restore() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      parameters_[p].set_data(first_parameters_[p].clone(at::MemoryFormat::Contiguous));
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      buffers_[b].copy_(first_buffers_[b]);
    }
  }

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> first_parameters_;
  std::vector<torch::Tensor> first_buffers_;
};

ir::Status check_parameters(const Layer& layer,
                            std::unordered_map<const void*, std::string>& owners) {
  for (const torch::Tensor& parameter : parameters_of({layer})) {
    if (parameter.scalar_type() != torch::kFloat32) {
      return unsuited(layer.name, std::string("has weights of ") +
                                      torch::toString(parameter.scalar_type()) + "; want float32");
    }
    const auto [owner, is_new] = owners.emplace(parameter.unsafeGetTensorImpl(), layer.name);
    if (!is_new) {
      return unsuited(layer.name, "shares a weight with layer " + owner->second +
                                      "; give each a weight of its own");
    }
  }
  return {};
}

ir::Result<Model> layers_of(const torch::nn::Sequential& net,
                            const std::string& name,
                            const std::vector<Skip>& skips,
                            const SampleShape& input,
                            std::int64_t classes) {
  if (ir::Status status = check_skips(skips, net->size()); !status.ok()) {
    return status.error();
  }
  Model model{.name = name, .layers = {}, .skips = skips};
  std::vector<torch::Tensor> outputs;
  std::unordered_map<const void*, std::string> owners;
  torch::Tensor x = trial_input(input, classes);
  const std::int64_t samples = x.size(0);
  auto any = net->begin();
  for (const auto& child : net->named_children()) {
    Layer layer;
    layer.name = child.key();
    layer.module->push_back(child.key(), *any++);
    for (const Skip& skip : skips) {
      if (skip.to == outputs.size()) {
        x = joined_to(x, outputs[skip.from], skip.join);
      }
    }
    if (ir::Status status = check_parameters(layer, owners); !status.ok()) {
      return status.error();
    }
    if (ir::Status status = check_layer(layer, x, model.layers.empty()); !status.ok()) {
      return status.error();
    }
    const PassScope pass({});
    const torch::NoGradGuard no_grad;
    x = layer.module->forward(x);
    if (x.dim() < 2 || x.size(0) != samples) {
      return unsuited(layer.name,
                      "turns " + std::to_string(samples) + " samples into something else");
    }
    describe(layer, x);
    outputs.push_back(x);
    model.layers.push_back(std::move(layer));
  }
  if (model.layers.empty() || x.size(-1) != classes) {
    return unsuited(name, "ends in " + std::to_string(model.layers.empty() ? 0 : x.size(-1)) +
                              " numbers a sample, the data have " + std::to_string(classes) +
                              " classes");
  }
  return model;
}

}  // namespace

ModelFactory own_model(torch::nn::Sequential net, std::string name, std::vector<Skip> skips) {
  net->train();
  const auto initial = std::make_shared<InitialState>(net);
  return [net = std::move(net), name = std::move(name), skips = std::move(skips), initial](
             const SampleShape& input, std::int64_t classes,
             std::uint64_t /*seed*/) -> ir::Result<Model> {
    initial->restore();
    try {
      ir::Result<Model> model = layers_of(net, name, skips, input, classes);
      initial->restore();  // the checks have moved weights and running statistics
      return model;
    } catch (const c10::Error& error) {
      return unsuited(name, error.what_without_backtrace());
    }
  };
}

}  // namespace xpipe::executor::nn
