#include "tests/executor_torch/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "executor/torch/intra_op_threads.h"
#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {

namespace {

/// One version of one parameter, with everything the optimizer knew then.
struct Known {
  torch::Tensor weight;
  torch::Tensor first;     ///< Adam's first moment, SGD's and RMSProp's momentum buffer
  torch::Tensor second;    ///< Adam's second moment, RMSProp's square average
  torch::Tensor gradient;  ///< the last one, decay included
  torch::Tensor smooth;    ///< v = gamma v + (1 - gamma) g
  int steps = 0;
};

Known next(const Known& now, const torch::Tensor& raw, const ToyTraining& training) {
  const nn::OptimizerConfig& o = training.optimizer;
  const double rate =
      nn::learning_rate_at(o.learning_rate, o.schedule, static_cast<std::uint64_t>(now.steps));
  Known then = now;
  ++then.steps;
  const bool decoupled = o.kind == nn::OptimizerKind::AdamW;
  const torch::Tensor g = decoupled ? raw : raw.add(now.weight, o.weight_decay);
  const double gamma = training.prediction.gamma;
  then.gradient = g;
  then.smooth = (now.steps == 0 ? torch::zeros_like(g) : now.smooth) * gamma + (1 - gamma) * g;
  switch (o.kind) {
    case nn::OptimizerKind::Sgd:
      then.first = now.steps == 0 ? g : now.first.mul(o.momentum).add(g);
      then.weight = now.weight.add(o.momentum == 0 ? g : then.first, -rate);
      break;
    case nn::OptimizerKind::Adam:
    case nn::OptimizerKind::AdamW: {
      const torch::Tensor zero = torch::zeros_like(g);
      then.first = o.beta1 * (now.steps == 0 ? zero : now.first) + (1 - o.beta1) * g;
      then.second = o.beta2 * (now.steps == 0 ? zero : now.second) + (1 - o.beta2) * g * g;
      const torch::Tensor m = then.first / (1 - std::pow(o.beta1, then.steps));
      const torch::Tensor v = then.second / (1 - std::pow(o.beta2, then.steps));
      const torch::Tensor decayed =
          decoupled ? now.weight * (1 - rate * o.weight_decay) : now.weight;
      then.weight = decayed - rate * m / (v.sqrt() + o.eps);
      break;
    }
    case nn::OptimizerKind::RmsProp:
      then.second =
          (now.steps == 0 ? torch::zeros_like(g) : now.second) * o.alpha + (1 - o.alpha) * g * g;
      then.weight = now.weight - rate * g / (then.second.sqrt() + o.eps);
      break;
  }
  return then;
}

torch::Tensor predicted(const Known& now, std::int64_t distance, const ToyTraining& training) {
  const nn::OptimizerConfig& o = training.optimizer;
  if (distance == 0 || now.steps == 0) {
    return now.weight;
  }
  torch::Tensor direction;
  if (training.prediction.extrapolation == nn::Extrapolation::SmoothedGradient) {
    direction = o.kind == nn::OptimizerKind::Sgd && o.momentum != 0 ? now.first : now.smooth;
  } else if (o.kind == nn::OptimizerKind::Sgd) {
    direction = o.momentum == 0 ? now.gradient : now.first;
  } else if (o.kind == nn::OptimizerKind::RmsProp) {
    direction = now.gradient / (now.second.sqrt() + o.eps);
  } else {
    const int t = training.prediction.bias == nn::BiasCorrection::Literal ? 1 : now.steps;
    direction = now.first / (1 - std::pow(o.beta1, t)) /
                ((now.second / (1 - std::pow(o.beta2, t))).sqrt() + o.eps);
    if (o.kind == nn::OptimizerKind::AdamW) {
      direction = direction + o.weight_decay * now.weight;
    }
  }
  double rates = 0.0;
  for (std::int64_t s = 0; s < distance; ++s) {
    rates += nn::learning_rate_at(o.learning_rate, o.schedule,
                                  static_cast<std::uint64_t>(now.steps + s));
  }
  return now.weight - rates * direction;
}

/// Updates of stage k before the forward of micro-batch j (methods.md 1.1): that forward comes
/// right after the backward of micro-batch j + 1 - (D - k), counted from 1, if there is one.
std::int64_t updates_at_forward(std::int64_t stages,
                                std::int64_t t,
                                std::int64_t k,
                                std::int64_t j) {
  return std::max<std::int64_t>(0, j + 1 - (stages - k)) / t;
}

std::vector<torch::Tensor> parameters(const nn::Model& model) {
  return nn::parameters_of(model.layers);
}

torch::Tensor loss_of(const nn::Model& model,
                      const nn::Samples& samples,
                      std::int64_t begin,
                      std::int64_t count,
                      std::int64_t mini_batch) {
  torch::Tensor x = samples.inputs.slice(0, begin, begin + count);
  for (const nn::Layer& layer : model.layers) {
    torch::nn::Sequential module = layer.module;  // forward() is not const
    x = module->forward(x);
  }
  return torch::nn::functional::cross_entropy(x, samples.labels.slice(0, begin, begin + count)) *
         (static_cast<double>(count) / static_cast<double>(mini_batch));
}

/// Calls `pass(begin, count)` for the micro-batches of a mini-batch: sizes n/T up, then n/T down.
void for_micro_batches(std::int64_t begin,
                       std::int64_t n,
                       std::int64_t t,
                       const std::function<void(std::int64_t, std::int64_t)>& pass) {
  for (std::int64_t j = 0; j < t; ++j) {
    const std::int64_t count = n / t + (j < n % t ? 1 : 0);
    pass(begin, count);
    begin += count;
  }
}

std::uint32_t total(const ToyTraining& training) {
  std::uint32_t samples = 0;
  for (const std::uint32_t count : training.mini_batches) {
    samples += count;
  }
  return samples;
}

}  // namespace

Rules xpipe_rules(std::int64_t stages, std::int64_t t, const std::string& predict) {
  // Twice the numerators, so that k / 2 stays whole: floor((D + T - k/2 - 2) / T).
  const auto steady_forward = [=](std::int64_t k) { return (2 * (stages + t - 2) - k) / (2 * t); };
  const auto steady_backward = [=](std::int64_t k) { return (t + k / 2 - 1) / t; };
  Rules rules;
  rules.forward = [=](std::int64_t k, std::int64_t j) -> Read {
    if (predict == "none") {
      return {updates_at_forward(stages, t, k, j), 0};
    }
    const std::int64_t i = j / t;  // all its micro-batches read the bellwether's copy
    return {updates_at_forward(stages, t, k, i * t),
            std::min(steady_forward(k), i + steady_backward(k))};
  };
  rules.backward = [=](std::int64_t k, std::int64_t j) -> Read {
    return {j / t, predict == "both" ? steady_backward(k) : 0};
  };
  return rules;
}

Rules spectrain_rules(std::int64_t stages, int variant) {
  const auto later = [=](std::int64_t k) { return variant == 1 ? k / 2 : 0; };
  Rules rules;
  rules.forward = [=](std::int64_t k, std::int64_t i) -> Read {
    return {std::max<std::int64_t>(0, i - (stages - 1 - k)),
            std::min(later(k) + stages - k - 1, i + later(k))};
  };
  const auto forward = rules.forward;
  rules.backward = [=](std::int64_t k, std::int64_t i) -> Read {
    return variant == 1 ? Read{i, later(k)} : forward(k, i);
  };
  return rules;
}

Rules pipedream_rules(std::int64_t stages) {
  const auto delayed = [=](std::int64_t k, std::int64_t i) -> Read {
    return {std::max<std::int64_t>(0, i - (stages - 1 - k)), 0};
  };
  return {delayed, delayed};
}

Rules unpredicted(Rules rules) {
  const auto still = [](auto rule) {
    return [rule](std::int64_t k, std::int64_t j) -> Read { return {rule(k, j).version, 0}; };
  };
  return {still(rules.forward), still(rules.backward)};
}

std::vector<torch::Tensor> replayed(const ToyTraining& training,
                                    std::uint32_t stages,
                                    std::uint32_t micro_batches,
                                    const Rules& rules) {
  const nn::IntraOpThreads one(1);
  const nn::Samples samples = toy_samples(total(training), training.dtype);
  nn::Model model = toy_model(training.seed, training.dtype);
  std::vector<torch::Tensor> leaves = parameters(model);
  std::vector<std::int64_t> stage_of;
  std::size_t layer = 0;
  const std::vector<std::uint32_t> partition = toy_partition(stages);
  for (std::size_t k = 0; k < partition.size(); ++k) {
    for (std::uint32_t l = 0; l < partition[k]; ++l, ++layer) {
      stage_of.insert(stage_of.end(), model.layers[layer].module->parameters().size(),
                      static_cast<std::int64_t>(k));
    }
  }
  std::vector<std::vector<Known>> versions;  // by parameter, then by version in the segment
  for (const torch::Tensor& leaf : leaves) {
    versions.push_back({Known{.weight = leaf.detach().clone()}});
  }
  const auto load = [&](const auto& rule, std::int64_t j) {
    for (std::size_t p = 0; p < leaves.size(); ++p) {
      const Read read = rule(stage_of[p], j);
      leaves[p].data().copy_(predicted(versions[p].at(static_cast<std::size_t>(read.version)),
                                       read.distance, training));
    }
  };
  for (std::uint32_t segment = 0; segment < training.segments; ++segment) {
    for (std::vector<Known>& known : versions) {
      known = {known.back()};
    }
    std::int64_t begin = 0;
    std::int64_t j = 0;
    for (const std::int64_t n : training.mini_batches) {
      for_micro_batches(begin, n, micro_batches, [&](std::int64_t from, std::int64_t count) {
        load(rules.forward, j);
        const torch::Tensor loss = loss_of(model, samples, from, count, n);
        load(rules.backward, j++);
        loss.backward();
      });
      for (std::size_t p = 0; p < leaves.size(); ++p) {
        versions[p].push_back(next(versions[p].back(), leaves[p].grad().clone(), training));
        leaves[p].mutable_grad().reset();
      }
      begin += n;
    }
  }
  std::vector<torch::Tensor> weights;
  for (const std::vector<Known>& known : versions) {
    weights.push_back(known.back().weight);
  }
  return weights;
}

std::vector<torch::Tensor> plainly_trained(const ToyTraining& training,
                                           std::uint32_t micro_batches) {
  namespace optim = torch::optim;
  const nn::IntraOpThreads one(1);
  const nn::Samples samples = toy_samples(total(training), training.dtype);
  const nn::Model model = toy_model(training.seed, training.dtype);
  const nn::OptimizerConfig& o = training.optimizer;
  std::unique_ptr<optim::Optimizer> optimizer;
  if (o.kind == nn::OptimizerKind::Sgd) {
    optimizer = std::make_unique<optim::SGD>(
        parameters(model),
        optim::SGDOptions(o.learning_rate).momentum(o.momentum).weight_decay(o.weight_decay));
  } else {
    REQUIRE(o.kind == nn::OptimizerKind::Adam);
    optimizer = std::make_unique<optim::Adam>(
        parameters(model), optim::AdamOptions(o.learning_rate).weight_decay(o.weight_decay));
  }
  for (std::uint32_t segment = 0; segment < training.segments; ++segment) {
    std::int64_t begin = 0;
    for (const std::uint32_t n : training.mini_batches) {
      optimizer->zero_grad();
      for_micro_batches(begin, n, micro_batches, [&](std::int64_t from, std::int64_t count) {
        loss_of(model, samples, from, count, n).backward();
      });
      optimizer->step();
      begin += n;
    }
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& leaf : parameters(model)) {
    weights.push_back(leaf.detach().clone());
  }
  return weights;
}

}  // namespace xpipe::tests
