// Which weights does a backward see? Those of the slot that its task names, whatever slot the
// forward read, and without a copy. Autograd hands every tensor it saves for the backward to a
// hook; one that is a view of a bound weight is remembered as (parameter, sizes, strides, offset)
// and not kept, and is rebuilt on the backward's slot when autograd asks for it again.
//
//   forward reads slot 1:   saved: input x ............ kept
//                           saved: weight.t() ......... (parameter 0, [in, out], [1, in], 0)
//   backward reads slot 2:  x, and slot2[0].as_strided([in, out], [1, in], 0)
//
// Source: reference/libtorch.md, "Which weights does a backward see?". Two facts it rests on: the
// default hook comes from a virtual of the autograd engine, and a hook object is asked on whatever
// thread the backward runs on, so it holds its stage's slots and looks up nothing thread-local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "ir/ids.h"

namespace xpipe::executor::nn {

/// All storages of one stage's parameters: slot 0 the master weights, the others what the schedule
/// puts there. Every tensor is contiguous, owns its storage and never moves. A parameter may be
/// computed with in another type than its master's: then its slots are of that type, and passes
/// read slot 0 in a copy, which refresh() makes after each step.
///
/// Thread-safety: none of its own; a stage's tasks follow each other by lanes and edges.
class WeightSlots {
 public:
  /// `masters` become slot 0: the tensors themselves, not copies. Each must be contiguous and own
  /// its whole storage (std::invalid_argument).
  /// `compute_types`, by parameter; empty: all as their masters are.
  explicit WeightSlots(std::vector<torch::Tensor> masters,
                       std::vector<torch::Dtype> compute_types = {});
  WeightSlots(const WeightSlots&) = delete;
  WeightSlots& operator=(const WeightSlots&) = delete;

  /// Allocates slots until there are `count`; those that are there stay.
  void reserve(std::size_t count);

  [[nodiscard]] std::size_t slots() const { return slots_.size(); }

  [[nodiscard]] std::size_t parameters() const { return slots_.front().size(); }

  /// The parameters of one slot, without requires_grad. Requires: a slot that is there.
  [[nodiscard]] const std::vector<torch::Tensor>& slot(ir::SlotId slot) const;

  /// What passes read of a slot: the slot itself, or the copy of slot 0.
  [[nodiscard]] const std::vector<torch::Tensor>& compute(ir::SlotId slot) const;

  /// Copies the masters into what passes read of them, where these are not the same.
  void refresh();

  /// Of all storages but the masters'.
  [[nodiscard]] std::size_t slot_bytes() const;

  /// Different storages held, over all slots and parameters.
  [[nodiscard]] std::size_t storages() const { return parameter_by_storage_.size(); }

  /// The parameter that `tensor`'s memory belongs to, in whichever slot.
  [[nodiscard]] std::optional<std::size_t> parameter_of(const torch::Tensor& tensor) const;

  /// The slot that weights saved by a forward are rebuilt on; none outside of a backward.
  [[nodiscard]] std::optional<ir::SlotId> backward_slot() const { return backward_slot_; }

  /// Called for every tensor that a forward saves and that is no weight; may be empty.
  std::function<void(const torch::Tensor&)> on_activation_saved;

 private:
  friend class BackwardScope;

  void own(const torch::Tensor& tensor, std::size_t parameter);

  std::vector<std::vector<torch::Tensor>> slots_;
  std::vector<torch::Tensor> compute_master_;  ///< masters, or their copies
  std::unordered_map<const void*, std::size_t> parameter_by_storage_;
  std::optional<ir::SlotId> backward_slot_;
};

/// While it lives, what this thread's forwards save goes through the hooks of `weights`. Forwards
/// on other threads, and on this one outside of such a scope, are left alone. Scopes may nest.
class ForwardScope {
 public:
  explicit ForwardScope(std::shared_ptr<WeightSlots> weights);
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope();

 private:
  std::shared_ptr<WeightSlots> previous_;
};

/// While it lives, backwards through graphs of `weights` compute with `slot`.
class BackwardScope {
 public:
  /// Requires: a slot that is there. `weights` outlives the scope.
  BackwardScope(WeightSlots& weights, ir::SlotId slot);
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;
  ~BackwardScope();

 private:
  WeightSlots& weights_;
};

/// Puts our autograd engine in the place of the default one; once a process, later calls do
/// nothing. ForwardScope calls it. Thread-safe. All it changes is where default hooks come from.
void install_weight_hooks();

}  // namespace xpipe::executor::nn
