#include "executor/torch/ties.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ir/status.h"

namespace xpipe::executor::nn {

namespace {

/// The stage of each layer.
std::vector<std::size_t> stage_of_layers(const std::vector<std::uint32_t>& partition) {
  std::vector<std::size_t> stages;
  for (std::size_t k = 0; k < partition.size(); ++k) {
    stages.insert(stages.end(), partition[k], k);
  }
  return stages;
}

torch::Tensor parameter_at(const Model& model, const LayerParameter& place) {
  return parameters_of({model.layers.at(place.layer)}).at(place.parameter);
}

/// The module of a tie's layer that holds `weight`.
TieableWeight& holder_of(const Layer& layer, const torch::Tensor& weight) {
  TieableWeight* holder = nullptr;
  for (const std::shared_ptr<torch::nn::Module>& module : layer.module->modules()) {
    auto* tieable = dynamic_cast<TieableWeight*>(module.get());
    if (tieable != nullptr && tieable->tieable_weight().is_same(weight)) {
      holder = tieable;
    }
  }
  XPIPE_CHECK(holder != nullptr) << "layer " << layer.name << " has no weight that can be tied";
  return *holder;
}

}  // namespace

std::vector<std::vector<StageParameter>> ties_across_stages(
    const Model& model, const std::vector<std::uint32_t>& partition) {
  const std::vector<std::size_t> stage_of = stage_of_layers(partition);
  std::vector<std::vector<StageParameter>> across;
  for (const Tie& tie : model.ties) {
    std::map<std::size_t, torch::Tensor> tensors;  // by stage
    for (const LayerParameter& place : tie) {
      tensors.emplace(stage_of.at(place.layer), parameter_at(model, place));
    }
    if (tensors.size() < 2) {
      continue;
    }
    std::vector<StageParameter>& ends = across.emplace_back();
    for (const auto& [stage, tensor] : tensors) {
      const auto first = std::ranges::find(stage_of, stage) - stage_of.begin();
      const auto begin = model.layers.begin() + first;
      const std::vector<torch::Tensor> all = parameters_of({begin, begin + partition[stage]});
      const auto found = std::ranges::find_if(
          all, [&wanted = tensor](const torch::Tensor& own) { return own.is_same(wanted); });
      ends.push_back({stage, static_cast<std::size_t>(found - all.begin())});
    }
  }
  return across;
}

void part_ties(const Model& model, const std::vector<std::uint32_t>& partition) {
  const std::vector<std::size_t> stage_of = stage_of_layers(partition);
  for (const Tie& tie : model.ties) {
    std::map<std::size_t, torch::Tensor> tensors;  // by stage
    tensors.emplace(stage_of.at(tie.front().layer), parameter_at(model, tie.front()));
    for (const LayerParameter& place : tie) {
      const torch::Tensor now = parameter_at(model, place);
      const auto [own, is_new] = tensors.try_emplace(stage_of.at(place.layer));
      if (is_new) {
        own->second = now.detach().clone().requires_grad_(now.requires_grad());
      }
      holder_of(model.layers[place.layer], now).set_tieable_weight(own->second);
    }
  }
}

}  // namespace xpipe::executor::nn
