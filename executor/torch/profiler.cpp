#include "executor/torch/profiler.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/torch.h>
#include <torch/version.h>

#include "executor/torch/dataset.h"
#include "executor/torch/dropout.h"
#include "executor/torch/image_files.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/loss.h"
#include "executor/torch/model.h"
#include "executor/torch/model_options.h"
#include "executor/torch/pass_graph.h"
#include "executor/torch/skips.h"
#include "executor/torch/stage_optimizer.h"
#include "executor/torch/timing_samples.h"
#include "executor/torch/weight_hooks.h"

namespace xpipe::executor::nn {

namespace {

using Clock = std::chrono::steady_clock;

ir::Nanos since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

/// "model name" of the first processor: its kind, not the machine's name.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(':');
      return colon + 2 < line.size() ? line.substr(colon + 2) : "unknown CPU";
    }
  }
  return "unknown CPU";
}

using ir::LayerSamples;

class ModelTimer {
 public:
  ModelTimer(Model model, torch::Tensor input, torch::Tensor labels, OptimizerKind optimizer)
      : model_(std::move(model)),
        pieces_(pieces_of(
            model_.layers,
            Cut::AtLayers,
            wire({static_cast<std::uint32_t>(model_.layers.size())}, model_.skips).front())),
        input_(std::move(input)),
        labels_(std::move(labels)),
        weights_(std::make_shared<WeightSlots>(parameters_of(model_.layers))),
        times_(model_.layers.size()) {
    // So small a rate that weights stay what they are; the arithmetic takes as long.
    const OptimizerConfig config{.kind = optimizer, .learning_rate = 1e-12};
    for (const Layer& layer : model_.layers) {
      std::vector<torch::Tensor> masters;
      for (const torch::Tensor& parameter : parameters_of({layer})) {
        masters.push_back(parameter.detach());
      }
      optimizers_.push_back(
          std::make_unique<StageOptimizer>(config, PredictionForm{}, false, std::move(masters)));
    }
  }

  /// Bytes by layer that the forward keeps for the backward.
  std::vector<ir::Bytes> saved_bytes() {
    std::vector<ir::Bytes> saved(model_.layers.size(), 0);
    std::unordered_set<const void*> seen;
    std::size_t current = 0;
    weights_->on_activation_saved = [&](const torch::Tensor& tensor) {
      if (tensor.has_storage() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second) {
        saved[current] += static_cast<ir::Bytes>(tensor.storage().nbytes());
      }
    };
    const ForwardScope scope(weights_);
    Tensors tensors(pieces_.tensors);
    tensors.front() = input_;
    for (current = 0; current < model_.layers.size(); ++current) {
      const Piece& piece = pieces_.pieces[current];
      put(tensors, piece.outputs, forward(current, picked(tensors, piece.inputs)));
    }
    weights_->on_activation_saved = nullptr;
    return saved;
  }

  /// One round; of `input_only`, backwards compute the inputs' gradients alone.
  void round(bool input_only, bool keep) {
    const std::size_t count = model_.layers.size();
    std::vector<Tensors> inputs(count);
    std::vector<Tensors> outputs(count);
    Tensors tensors(pieces_.tensors);
    tensors.front() = input_;
    for (std::size_t l = 0; l < count; ++l) {
      const Piece& piece = pieces_.pieces[l];
      for (const torch::Tensor& read : picked(tensors, piece.inputs)) {
        inputs[l].push_back(read.detach());
        inputs[l].back().requires_grad_(l > 0);
      }
      const ForwardScope scope(weights_);
      const Clock::time_point start = Clock::now();
      outputs[l] = forward(l, inputs[l]);
      if (keep && !input_only) {
        times_[l].forward.push_back(since(start));
      }
      put(tensors, piece.outputs, outputs[l]);
    }
    Tensors gradients(pieces_.tensors);
    for (std::size_t l = count; l-- > 0;) {
      const Piece& piece = pieces_.pieces[l];
      Tensors roots;
      Tensors of_roots;
      for (std::size_t i = 0; i < outputs[l].size(); ++i) {
        const torch::Tensor& gradient = gradients[piece.outputs[i]];
        if (outputs[l][i].requires_grad() && (gradient.defined() || l + 1 == count)) {
          roots.push_back(outputs[l][i]);
          of_roots.push_back(gradient);
        }
      }
      const BackwardScope scope(*weights_, ir::kMasterSlot);
      const Clock::time_point start = Clock::now();
      Tensors down(inputs[l].size());
      if (!roots.empty() && input_only && l > 0) {
        down = torch::autograd::grad(roots, inputs[l], of_roots);
      } else if (!roots.empty() && !input_only) {
        torch::autograd::backward(roots, of_roots);
        for (std::size_t i = 0; i < down.size(); ++i) {
          down[i] = inputs[l][i].grad();
        }
      }
      if (keep) {
        (input_only ? times_[l].backward_input : times_[l].backward).push_back(since(start));
      }
      for (std::size_t i = 0; i < down.size(); ++i) {
        add_gradient(gradients[piece.inputs[i]], down[i]);
      }
    }
    if (!input_only) {
      update(keep);
    }
  }

  [[nodiscard]] const Model& model() const { return model_; }

  [[nodiscard]] const LayerSamples& times(std::size_t layer) const { return times_[layer]; }

 private:
  /// What the layer hands on; of the last one, the loss.
  Tensors forward(std::size_t layer, const Tensors& inputs) {
    const PassScope pass({});
    Tensors outputs = pieces_.pieces[layer].run(inputs);
    if (layer + 1 == model_.layers.size()) {
      outputs.back() = mean_loss(LossKind::CrossEntropy, outputs.back(), labels_);
    }
    return outputs;
  }

  static Tensors picked(const Tensors& tensors, const std::vector<std::size_t>& numbers) {
    Tensors some;
    some.reserve(numbers.size());
    for (const std::size_t number : numbers) {
      some.push_back(tensors[number]);
    }
    return some;
  }

  static void put(Tensors& tensors, const std::vector<std::size_t>& numbers, const Tensors& made) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      tensors[numbers[i]] = made[i];
    }
  }

  /// Steps with the gradients of the round, layer by layer, and drops them.
  void update(bool keep) {
    for (std::size_t l = 0; l < model_.layers.size(); ++l) {
      std::vector<torch::Tensor> gradients;
      for (torch::Tensor& parameter : parameters_of({model_.layers[l]})) {
        gradients.push_back(std::move(parameter.mutable_grad()));
        parameter.mutable_grad().reset();
      }
      const Clock::time_point start = Clock::now();
      optimizers_[l]->step(std::move(gradients));
      if (keep) {
        times_[l].update.push_back(since(start));
      }
    }
  }

  Model model_;
  Pieces pieces_;  ///< a piece a layer
  torch::Tensor input_;
  torch::Tensor labels_;
  std::shared_ptr<WeightSlots> weights_;
  std::vector<LayerSamples> times_;
  std::vector<std::unique_ptr<StageOptimizer>> optimizers_;  ///< by layer
};

ir::Status check_request(const ProfileRequest& request) {
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const auto& [option, value] :
       {std::pair{"--batch-size", request.samples}, std::pair{"--repeats", request.repeats},
        std::pair{"--intra-op-threads", request.intra_op_threads}}) {
    if (value == 0) {
      error.diagnostics.push_back({"bad-value", option, "0; want 1 or more"});
    }
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

std::string provenance(const ProfileRequest& request) {
  return "measured by xpipe profile on " + processor() + ", cpu, " +
         std::to_string(request.intra_op_threads) + " intra-op thread(s), torch " + TORCH_VERSION +
         ", input " + std::to_string(request.channels) + "x" + std::to_string(request.height) +
         "x" + std::to_string(request.width) + ", medians of " + std::to_string(request.repeats) +
         " rounds after " + std::to_string(request.warm_up) + " of warm-up, updates of " +
         std::string(optimizer_name(request.optimizer)) +
         (request.date.empty() ? "" : ", " + request.date);
}

/// Gathering `batch`'s samples in another order than they lie in.
ir::Nanos loading_time(const torch::Tensor& batch, std::uint32_t repeats) {
  const auto count = static_cast<std::uint32_t>(batch.size(0));
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    order[i] = count - 1 - i;
  }
  std::vector<ir::Nanos> times;
  for (std::uint32_t r = 0; r <= repeats; ++r) {
    const Clock::time_point start = Clock::now();
    const torch::Tensor gathered = gather(batch, order, {.begin = 0, .count = count});
    if (r > 0) {  // the first gets the memory
      times.push_back(since(start));
    }
  }
  return summarize(times).median;
}

std::string microseconds(ir::Nanos time) {
  return std::to_string(time / 1000) + "." + std::to_string(time % 1000 / 100);
}

/// Fills in times and what is to be said of them.
void set_times(MeasuredProfile& measured, std::size_t l, const LayerSamples& times) {
  ir::LayerProfile& layer = measured.profile.layers[l];
  const TimingSummary forward = summarize(times.forward);
  const TimingSummary backward = summarize(times.backward);
  const bool has_weights = layer.parameter_bytes > 0;
  layer.forward = forward.median;
  layer.backward_input = l == 0 ? 0
                         : has_weights
                             ? std::min(summarize(times.backward_input).median, backward.median)
                             : backward.median;
  layer.backward_weight = backward.median - layer.backward_input;
  if (has_weights) {
    layer.update = summarize(times.update).median;
  }
  measured.spreads.push_back({forward.spread, backward.spread});
  measured.samples.push_back(times);
  const auto warn = [&](const char* what, ir::Nanos first, const TimingSummary& summary) {
    if (summary.first_is_off) {
      measured.warnings.push_back(layer.name + ": its first " + what + " took " +
                                  microseconds(first) + " us, the median is " +
                                  microseconds(summary.median) + " us; give it more --warm-up");
    }
  };
  warn("forward", times.forward.front(), forward);
  warn("backward", times.backward.front(), backward);
}

MeasuredProfile measure(const ProfileRequest& request,
                        Model model,
                        const SampleShape& shape,
                        std::int64_t classes) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const std::int64_t samples = request.samples;
  const std::vector<std::int64_t> text{samples, shape.sequence};
  const std::vector<std::int64_t> images{samples, shape.channels, shape.height, shape.width};
  const torch::Tensor input = shape.is_text()
                                  ? torch::randint(classes, text, generator, torch::kInt64)
                                  : torch::randn(images, generator);
  ModelTimer timer(
      std::move(model), input,
      torch::randint(classes, shape.is_text() ? text : std::vector<std::int64_t>{samples},
                     generator, torch::kInt64),
      request.optimizer);
  MeasuredProfile measured{.profile = estimated_profile(timer.model(), request.samples)};
  ir::Profile& profile = measured.profile;
  profile.provenance = provenance(request);
  const std::vector<ir::Bytes> saved = timer.saved_bytes();
  const std::uint32_t rounds = request.warm_up + request.repeats;
  for (std::uint32_t r = 0; r < rounds; ++r) {
    timer.round(true, r >= request.warm_up);
    timer.round(false, r >= request.warm_up);
    if (request.on_round) {
      request.on_round(r + 1, rounds);
    }
  }
  profile.data_loading = loading_time(input, request.repeats);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    set_times(measured, l, timer.times(l));
    profile.layers[l].saved_bytes = saved[l];
    profile.layers[l].saved_for_weight_bytes = profile.layers[l].parameter_bytes > 0 ? saved[l] : 0;
  }
  return measured;
}

}  // namespace

ir::Result<MeasuredProfile> profile_model(const ProfileRequest& request) {
  if (ir::Status status = check_request(request); !status.ok()) {
    return status.error();
  }
  const ir::Result<std::uint32_t> sequence = sequence_of(request.model, request.model_options);
  if (!sequence.ok()) {
    return sequence.error();
  }
  constexpr std::int64_t kBytes = 256;  // a vocabulary, where no --set vocabulary says another
  const SampleShape shape{request.channels, request.height, request.width, sequence.value()};
  const std::int64_t classes = shape.is_text() ? kBytes : kClasses;
  ir::Result<Model> model = build_model(request.model, request.model_options, shape, classes, 0);
  if (!model.ok()) {
    return model.error();
  }
  const IntraOpThreads threads(request.intra_op_threads);
  try {
    return measure(request, std::move(model.value()), shape, classes);
  } catch (const c10::Error& error) {
    return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", request.model,
                          error.what_without_backtrace());
  }
}

}  // namespace xpipe::executor::nn
