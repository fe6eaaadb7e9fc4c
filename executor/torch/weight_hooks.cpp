#include "executor/torch/weight_hooks.h"

#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace xpipe::executor::nn {

namespace {

thread_local std::shared_ptr<WeightSlots> weights_in_forward;

const void* storage_key(const torch::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

/// One saved tensor: either a place in a parameter, or the tensor itself.
class SavedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedTensor(std::shared_ptr<WeightSlots> weights) : weights_(std::move(weights)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    parameter_ = weights_->parameter_of(tensor);
    if (!parameter_) {
      // Detached: an operation's own output would hold the graph that holds it.
      kept_ = tensor.detach();
      version_ = kept_._version();
      if (weights_->on_activation_saved) {
        weights_->on_activation_saved(kept_);
      }
      return;
    }
    TORCH_CHECK(
        tensor.scalar_type() == weights_->compute(ir::kMasterSlot)[*parameter_].scalar_type(),
        "a layer saves its weights reinterpreted as ", tensor.scalar_type(),
        "; another slot's cannot be put in their place");
    sizes_ = tensor.sizes().vec();
    strides_ = tensor.strides().vec();
    offset_ = tensor.storage_offset();
  }

  at::Tensor call_unpack_hook() override {
    if (!parameter_) {
      TORCH_CHECK(kept_._version() == version_,
                  "a tensor saved for the backward was modified in place after the forward");
      return kept_;
    }
    const std::optional<ir::SlotId> slot = weights_->backward_slot();
    TORCH_CHECK(slot.has_value(), "a backward through a stage's graph outside of its backward");
    const at::NoGradGuard no_grad;
    return weights_->compute(*slot)[*parameter_].as_strided(sizes_, strides_, offset_);
  }

 private:
  std::shared_ptr<WeightSlots> weights_;
  std::optional<std::size_t> parameter_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  std::int64_t offset_ = 0;
  at::Tensor kept_;
  std::int64_t version_ = 0;
};

class HookEngine final : public torch::autograd::Engine {
 public:
  HookEngine() = default;
  HookEngine(const HookEngine&) = delete;
  HookEngine(HookEngine&&) = delete;
  HookEngine& operator=(const HookEngine&) = delete;
  HookEngine& operator=(HookEngine&&) = delete;

  ~HookEngine() override { stop(); }  // Engine's rule for subclasses

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (!weights_in_forward) {
      return nullptr;
    }
    return std::make_unique<SavedTensor>(weights_in_forward);
  }
};

torch::autograd::Engine& hook_engine() {
  static HookEngine engine;
  return engine;
}

}  // namespace

WeightSlots::WeightSlots(std::vector<torch::Tensor> masters,
                         std::vector<torch::Dtype> compute_types) {
  for (std::size_t p = 0; p < masters.size(); ++p) {
    torch::Tensor& master = masters[p];
    master = master.detach();
    const bool owns_all =
        master.is_contiguous() && master.storage_offset() == 0 &&
        master.storage().nbytes() == static_cast<std::size_t>(master.numel()) * master.itemsize();
    if (!owns_all || !parameter_by_storage_.emplace(storage_key(master), p).second) {
      throw std::invalid_argument("parameter " + std::to_string(p) +
                                  " shares its memory with another tensor");
    }
  }
  slots_.push_back(std::move(masters));
  for (std::size_t p = 0; p < parameters(); ++p) {
    const torch::Tensor& master = slots_.front()[p];
    const bool is_same = compute_types.empty() || compute_types[p] == master.scalar_type();
    compute_master_.push_back(is_same ? master : torch::empty_like(master, compute_types[p]));
    own(compute_master_.back(), p);
  }
  refresh();
}

void WeightSlots::own(const torch::Tensor& tensor, std::size_t parameter) {
  parameter_by_storage_.emplace(storage_key(tensor), parameter);
}

const std::vector<torch::Tensor>& WeightSlots::compute(ir::SlotId slot) const {
  return slot == ir::kMasterSlot ? compute_master_ : this->slot(slot);
}

void WeightSlots::refresh() {
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < parameters(); ++p) {
    if (!compute_master_[p].is_same(slots_.front()[p])) {
      compute_master_[p].copy_(slots_.front()[p]);
    }
  }
}

std::size_t WeightSlots::slot_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < parameters(); ++p) {
    bytes += compute_master_[p].is_same(slots_.front()[p]) ? 0 : compute_master_[p].nbytes();
    for (std::size_t slot = 1; slot < slots_.size(); ++slot) {
      bytes += slots_[slot][p].nbytes();
    }
  }
  return bytes;
}

void WeightSlots::reserve(std::size_t count) {
  while (slots_.size() < count) {
    std::vector<torch::Tensor> slot;
    for (const torch::Tensor& weight : compute_master_) {
      // Zeros, not empty: pages are touched here and not in the first task that writes them.
      slot.push_back(torch::zeros_like(weight));
      own(slot.back(), slot.size() - 1);
    }
    slots_.push_back(std::move(slot));
  }
}

const std::vector<torch::Tensor>& WeightSlots::slot(ir::SlotId slot) const {
  return slots_.at(ir::index_of(slot));
}

std::optional<std::size_t> WeightSlots::parameter_of(const torch::Tensor& tensor) const {
  if (!tensor.has_storage()) {
    return std::nullopt;
  }
  const auto found = parameter_by_storage_.find(storage_key(tensor));
  if (found == parameter_by_storage_.end()) {
    return std::nullopt;
  }
  return found->second;
}

ForwardScope::ForwardScope(std::shared_ptr<WeightSlots> weights) {
  install_weight_hooks();
  previous_ = std::exchange(weights_in_forward, std::move(weights));
}

ForwardScope::~ForwardScope() {
  weights_in_forward = std::move(previous_);
}

BackwardScope::BackwardScope(WeightSlots& weights, ir::SlotId slot) : weights_(weights) {
  weights_.backward_slot_ = slot;
}

BackwardScope::~BackwardScope() {
  weights_.backward_slot_.reset();
}

void install_weight_hooks() {
  static std::once_flag installed;
  std::call_once(installed, [] { torch::autograd::set_default_engine_stub(hook_engine); });
}

}  // namespace xpipe::executor::nn
