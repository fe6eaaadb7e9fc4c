// The tensors that travel between stages, in the places that a message goes through. A message is
// what one stage has for another of one micro-batch; forwards and backwards have places of their
// own.
//
//   stage k forward -> outbox -> SEND -> wire -> RECV -> inbox -> a later stage's forward
//   (two stages on one device: outbox and inbox are one, no messages)
//   (two processes:  outbox -> SEND -> wire --collect()--> transport --deliver()--> wire -> RECV)
//   (their GPUs:     SEND and RECV move the numbers themselves; what lies on the wire, and is
//                    packed and unpacked, is a tensor of LibTorch's meta device: sizes and type)
//
// Thread-safety: lanes and transport may call at the same time; each place is written and read in
// an order that the schedule's edges give.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "executor/parcel.h"
#include "executor/torch/skips.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::executor::nn {

/// The tensor's memory, on the CPU and row-major (a copy where it is not); of a meta tensor none.
[[nodiscard]] PackedTensor pack(const torch::Tensor& tensor);

/// A tensor on the packed memory, which it keeps; a meta tensor where there is none. Errors:
/// Runtime "bad-message" when sizes, type and bytes do not agree.
[[nodiscard]] ir::Result<torch::Tensor> unpack(const PackedTensor& packed);

class Mailboxes final : public Mail {
 public:
  using Message = std::vector<torch::Tensor>;
  /// What a tensor becomes on its way.
  using Carry = std::function<ir::Result<torch::Tensor>(const torch::Tensor&)>;

  /// Empties all places, of which there are those of `wiring`, by stage; `schedule` must outlive
  /// the segment.
  void begin_segment(const ir::Schedule& schedule, const std::vector<StageWiring>& wiring);

  /// What stage `from` has for stage `to`, of micro-batch `j`.
  void post(ir::Pass pass, std::size_t from, std::size_t to, std::uint32_t j, Message message);

  /// What stage `from` had for stage `to`; empty when it has not arrived.
  [[nodiscard]] Message take(ir::Pass pass, std::size_t from, std::size_t to, std::uint32_t j);

  /// The tasks' own work. Errors: Internal "no-tensor" when there is nothing to move.
  /// `carry`: what a tensor becomes on the wire; `bring`: on the receiver's device. Without them,
  /// itself. Errors: theirs, too.
  ir::Status send(const ir::Task& task, const Carry& carry = {});
  ir::Status receive(const ir::Task& task, const Carry& bring = {});

  [[nodiscard]] std::optional<Parcel> collect(ir::TaskId task) override;
  [[nodiscard]] ir::Status deliver(ir::TaskId task, Parcel parcel) override;

  /// Bytes that lie here now. At drained borders only.
  [[nodiscard]] ir::Bytes bytes() const;

 private:
  /// Places by micro-batch of the segment, from one stage to another.
  struct Places {
    std::vector<Message> outbox;
    std::vector<Message> wire;
    std::vector<Message> inbox;
  };

  [[nodiscard]] Places& places(ir::Pass pass, std::size_t from, std::size_t to);
  /// Whether micro-batch `j` is on one device in both stages.
  [[nodiscard]] bool same_device(std::size_t a, std::size_t b, std::uint32_t j) const;

  const ir::Schedule* schedule_ = nullptr;
  std::size_t micro_batches_ = 0;      ///< of the segment
  std::vector<ir::DeviceId> devices_;  ///< by stage and micro-batch; empty: no stage is replicated
  /// By pass, then by from x stages + to; empty where nothing goes.
  std::array<std::vector<Places>, 2> places_;
};

}  // namespace xpipe::executor::nn
