#include "executor/torch/model.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "executor/torch/sample_order.h"
#include "executor/torch/ties.h"

namespace xpipe::executor::nn {

std::int64_t parameter_count(const Layer& layer) {
  return parameter_count(std::vector<Layer>{layer});
}

std::int64_t parameter_count(const std::vector<Layer>& layers) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : parameters_of(layers)) {
    count += parameter.numel();
  }
  return count;
}

std::int64_t parameter_count(const Model& model) {
  return parameter_count(model.layers);
}

std::vector<torch::Tensor> parameters_of(const std::vector<Layer>& layers) {
  std::vector<torch::Tensor> parameters;
  std::unordered_set<const void*> seen;
  for (const Layer& layer : layers) {
    for (torch::Tensor& parameter : layer.module->parameters()) {
      // A frozen weight is a constant: no version of it differs from another.
      if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
        parameters.push_back(parameter);
      }
    }
  }
  return parameters;
}

std::vector<torch::Dtype> compute_types_of(const std::vector<Layer>& layers, torch::Dtype type) {
  std::set<const void*> of_batch_norms;
  const auto parent_of = [](const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
  };
  for (const Layer& layer : layers) {
    std::set<std::string> batch_norms;
    for (const auto& buffer : layer.module->named_buffers()) {
      if (buffer.key().ends_with("running_mean")) {
        batch_norms.insert(parent_of(buffer.key()));
      }
    }
    for (const auto& parameter : layer.module->named_parameters()) {
      if (batch_norms.contains(parent_of(parameter.key()))) {
        of_batch_norms.insert(parameter.value().unsafeGetTensorImpl());
      }
    }
  }
  std::vector<torch::Dtype> types;
  for (const torch::Tensor& parameter : parameters_of(layers)) {
    types.push_back(
        of_batch_norms.contains(parameter.unsafeGetTensorImpl()) ? parameter.scalar_type() : type);
  }
  return types;
}

std::uint64_t layer_seed(std::uint64_t seed, std::size_t index) {
  return mixed_seed(seed, index);
}

ir::Profile estimated_profile(const Model& model, std::uint32_t samples) {
  ir::Profile profile;
  profile.name = model.name;
  profile.provenance = "estimated: 1 ns a multiply-add, backward twice the forward";
  profile.samples = samples;
  for (const Layer& layer : model.layers) {
    const auto forward = static_cast<ir::Nanos>(layer.macs * samples);
    ir::LayerProfile entry;
    entry.name = layer.name;
    entry.forward = forward;
    entry.backward_input = forward;
    entry.backward_weight = forward;
    entry.output_bytes = layer.output_size * samples * static_cast<ir::Bytes>(sizeof(float));
    entry.parameter_bytes = parameter_count(layer) * static_cast<ir::Bytes>(sizeof(float));
    if (!profile.layers.empty()) {
      const auto index = static_cast<std::uint32_t>(profile.layers.size());
      profile.edges.push_back({.from = index - 1, .to = index});
    }
    profile.layers.push_back(std::move(entry));
  }
  for (const Skip& skip : model.skips) {
    profile.edges.push_back(
        {.from = static_cast<std::uint32_t>(skip.from), .to = static_cast<std::uint32_t>(skip.to)});
  }
  std::ranges::sort(profile.edges, {},
                    [](const ir::LayerEdge& edge) { return std::pair(edge.from, edge.to); });
  return profile;
}

std::vector<std::vector<Layer>> cut(const Model& model,
                                    const std::vector<std::uint32_t>& partition) {
  part_ties(model, partition);
  std::vector<std::vector<Layer>> parts;
  parts.reserve(partition.size());
  auto next = model.layers.begin();
  for (const std::uint32_t size : partition) {
    parts.emplace_back(next, next + size);
    next += size;
  }
  return parts;
}

}  // namespace xpipe::executor::nn
