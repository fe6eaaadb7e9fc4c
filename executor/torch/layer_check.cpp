#include "executor/torch/layer_check.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>

#include "executor/torch/dropout.h"
#include "executor/torch/weight_hooks.h"

namespace xpipe::executor::nn {

namespace {

constexpr ir::SlotId kOther{1};
constexpr std::int64_t kTrialSamples = 2;
constexpr int kCalls = 4;  // TorchScript profiles the first call or two, then runs what it compiled

/// Of input and parameters; undefined ones become zeros.
using Gradients = std::vector<torch::Tensor>;

class Checker {
 public:
  Checker(const Layer& layer, const torch::Tensor& input, bool is_first)
      : layer_(layer),
        random_(at::make_generator<at::CPUGeneratorImpl>(7)),
        leaves_(parameters_of({layer})),
        slots_(std::make_shared<WeightSlots>(leaves_)) {
    input_ = input.detach().clone();
    input_.requires_grad_(!is_first && input_.is_floating_point());
    slots_->reserve(2);
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      XPIPE_CHECK(leaves_[p].is_leaf()) << "weight " << p << " of " << layer.name << " is computed";
      const torch::Tensor& master = slots_->slot(ir::kMasterSlot)[p];
      torch::Tensor(slots_->slot(kOther)[p])
          .copy_(master + 0.5 * (master.abs() + 0.1) * noise(master));
    }
  }

  [[nodiscard]] bool has_work() const { return !leaves_.empty() || input_.requires_grad(); }

  Gradients by_hooks() {
    bind(ir::kMasterSlot);
    torch::Tensor output;
    {
      const ForwardScope scope(slots_);
      output = forward();
    }
    // A step may overwrite the weights in between: those that the forward read are gone.
    const BackwardScope scope(*slots_, kOther);
    return backward(output);
  }

  Gradients in_place() {
    bind(ir::kMasterSlot);
    const torch::Tensor output = forward();
    std::vector<torch::Tensor> before;
    before.reserve(leaves_.size());
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      before.push_back(leaves_[p].detach().clone());
      leaves_[p].data().copy_(slots_->slot(kOther)[p]);
    }
    Gradients gradients = backward(output);
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      leaves_[p].data().copy_(before[p]);
    }
    return gradients;
  }

 private:
  torch::Tensor noise(const torch::Tensor& like) {
    return torch::randn(like.sizes(), random_).to(like.scalar_type());
  }

  void bind(ir::SlotId slot) {
    for (std::size_t p = 0; p < leaves_.size(); ++p) {
      leaves_[p].set_data(slots_->slot(slot)[p]);
    }
  }

  torch::Tensor forward() {
    const PassScope pass({.seed = 1});
    torch::nn::Sequential module = layer_.module;
    return module->forward(input_);
  }

  Gradients backward(const torch::Tensor& output) {
    if (!upward_.defined()) {
      upward_ = noise(output);
    }
    torch::autograd::backward({output}, {upward_});
    Gradients gradients;
    const auto take = [&gradients](torch::Tensor tensor) {
      gradients.push_back(tensor.grad().defined() ? tensor.grad().clone()
                                                  : torch::zeros_like(tensor));
      tensor.mutable_grad().reset();
    };
    if (input_.requires_grad()) {
      take(input_);
    }
    for (const torch::Tensor& leaf : leaves_) {
      take(leaf);
    }
    return gradients;
  }

  const Layer& layer_;
  at::Generator random_;
  std::vector<torch::Tensor> leaves_;
  std::shared_ptr<WeightSlots> slots_;
  torch::Tensor input_;
  torch::Tensor upward_;
};

ir::Error of_own_operations(const Layer& layer, const std::string& what) {
  return unsuited(layer.name, what + "; write this layer of PyTorch's own operations");
}

bool are_alike(const Gradients& a, const Gradients& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double scale = b[i].abs().max().item<double>();
    if (!torch::allclose(a[i], b[i], 1e-4, 1e-5 * scale)) {
      return false;
    }
  }
  return true;
}

}  // namespace

ir::Error unsuited(const std::string& layer, std::string what) {
  return ir::make_error(ir::ErrorKind::Usage, "layer-unsuited", layer, std::move(what));
}

torch::Tensor trial_input(const SampleShape& input, std::int64_t classes) {
  return input.is_text() ? torch::randint(classes, {kTrialSamples, input.sequence}, torch::kInt64)
                         : torch::randn({kTrialSamples, input.channels, input.height, input.width});
}

void describe(Layer& layer, const torch::Tensor& output) {
  layer.output_size = output.numel() / kTrialSamples;
  const std::int64_t features = output.dim() == 3 ? output.size(2) : output.size(1);
  const std::int64_t places = layer.output_size / std::max<std::int64_t>(features, 1);
  layer.macs = static_cast<std::uint64_t>(
      parameter_count(layer) * std::max<std::int64_t>(places, 1) + layer.output_size);
}

ir::Status check_layer(const Layer& layer, const torch::Tensor& input, bool is_first) {
  try {
    Checker checker(layer, input, is_first);
    if (checker.has_work() && !are_alike(checker.in_place(), checker.in_place())) {
      return of_own_operations(
          layer,
          "it gives other gradients each time: random numbers that no seed of a pass "
          "fixes (in C++, take KeyedDropout for torch::nn::Dropout)");
    }
    for (int call = 0; call < kCalls && checker.has_work(); ++call) {
      const Gradients expected = checker.in_place();
      if (!are_alike(checker.by_hooks(), expected)) {
        return of_own_operations(
            layer,
            "its backward does not compute with the weights it is given, but with "
            "those of its forward, or a mixture of both");
      }
    }
  } catch (const c10::Error& error) {
    return of_own_operations(
        layer, std::string("its forward or backward fails: ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return of_own_operations(layer, std::string("its forward or backward fails: ") + error.what());
  }
  return {};
}

}  // namespace xpipe::executor::nn
