#include "executor/torch/mailboxes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "ir/text.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;
using ir::index_of;

ir::Error not_arrived(const char* place) {
  return ir::make_error(ErrorKind::Internal, "no-tensor", "",
                        std::string("its ") + place + " has not arrived");
}

ir::Error bad_message(std::string what) {
  return ir::make_error(ErrorKind::Runtime, "bad-message", "", std::move(what));
}

/// Changes all tensors of a message.
ir::Status change(Mailboxes::Message& message, const Mailboxes::Carry& into) {
  if (!into) {
    return {};
  }
  for (torch::Tensor& tensor : message) {
    ir::Result<torch::Tensor> changed = into(tensor);
    if (!changed.ok()) {
      return changed.status();
    }
    tensor = std::move(changed).value();
  }
  return {};
}

ir::Bytes bytes_in(const std::vector<Mailboxes::Message>& messages) {
  ir::Bytes bytes = 0;
  for (const Mailboxes::Message& message : messages) {
    for (const torch::Tensor& tensor : message) {
      bytes += tensor.defined() ? static_cast<ir::Bytes>(tensor.nbytes()) : 0;
    }
  }
  return bytes;
}

}  // namespace

PackedTensor pack(const torch::Tensor& tensor) {
  if (tensor.is_meta()) {
    return {.type = static_cast<std::uint8_t>(tensor.scalar_type()), .sizes = tensor.sizes().vec()};
  }
  const auto dense = std::make_shared<const torch::Tensor>(tensor.detach().cpu().contiguous());
  PackedTensor packed;
  packed.type = static_cast<std::uint8_t>(dense->scalar_type());
  packed.sizes = dense->sizes().vec();
  packed.data = static_cast<const std::byte*>(dense->const_data_ptr());
  packed.bytes = dense->nbytes();
  packed.owner = dense;
  return packed;
}

ir::Result<torch::Tensor> unpack(const PackedTensor& packed) {
  if (packed.type >= static_cast<std::uint8_t>(c10::ScalarType::NumOptions)) {
    return bad_message("no tensor has the type " + std::to_string(packed.type));
  }
  const auto type = static_cast<c10::ScalarType>(packed.type);
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : packed.sizes) {
    bytes *= static_cast<std::size_t>(size);
  }
  if (packed.bytes == 0 && bytes > 0) {
    return torch::empty(packed.sizes, torch::TensorOptions(type).device(torch::kMeta));
  }
  if (bytes != packed.bytes) {
    return bad_message("a tensor of " + std::to_string(bytes) + " bytes came with " +
                       std::to_string(packed.bytes));
  }
  // The tensor is the memory's only user from here on, so that it may write to it.
  auto* data = const_cast<std::byte*>(packed.data);
  return torch::from_blob(
      data, packed.sizes, [owner = packed.owner](void*) {}, torch::TensorOptions().dtype(type));
}

void Mailboxes::begin_segment(const ir::Schedule& schedule,
                              const std::vector<StageWiring>& wiring) {
  schedule_ = &schedule;
  const std::size_t stages = schedule.stages.size();
  const std::size_t total = std::size_t{schedule.micro_batches} * schedule.mini_batches;
  micro_batches_ = total;
  const bool replicated = std::ranges::any_of(
      schedule.stages, [](const ir::StageInfo& stage) { return stage.is_replicated(); });
  devices_.assign(replicated ? stages * total : 0, ir::DeviceId{});
  for (std::vector<Places>& of_pass : places_) {
    of_pass.assign(stages * stages, Places{});
  }
  const auto make = [&](std::size_t from, std::size_t to, ir::Pass pass) {
    Places& between = places(pass, from, to);
    between.outbox.resize(total);
    between.wire.resize(total);
    between.inbox.resize(total);
  };
  for (std::size_t k = 0; k < stages; ++k) {
    for (const StagePort& port : wiring[k].to) {
      make(k, port.stage, ir::Pass::Forward);
      make(port.stage, k, ir::Pass::Backward);
    }
  }
  for (const ir::Task& task : schedule.tasks) {
    if (const auto* message = std::get_if<ir::Send>(&task.payload)) {
      make(index_of(task.stage), index_of(message->peer), message->pass);
    } else if (const auto* forward = std::get_if<ir::Forward>(&task.payload);
               forward != nullptr && replicated) {
      devices_[index_of(task.stage) * total + index_of(forward->micro_batch)] =
          schedule.lane(task.lane).device;
    }
  }
}

Mailboxes::Places& Mailboxes::places(ir::Pass pass, std::size_t from, std::size_t to) {
  return places_[static_cast<std::size_t>(pass)].at(from * schedule_->stages.size() + to);
}

bool Mailboxes::same_device(std::size_t a, std::size_t b, std::uint32_t j) const {
  const auto device = [this, j](std::size_t stage) {
    return devices_.empty() ? schedule_->stages[stage].device()
                            : devices_.at(stage * micro_batches_ + j);
  };
  return device(a) == device(b);
}

void Mailboxes::post(
    ir::Pass pass, std::size_t from, std::size_t to, std::uint32_t j, Message message) {
  Places& between = places(pass, from, to);
  (same_device(from, to, j) ? between.inbox : between.outbox).at(j) = std::move(message);
}

Mailboxes::Message Mailboxes::take(ir::Pass pass,
                                   std::size_t from,
                                   std::size_t to,
                                   std::uint32_t j) {
  return std::exchange(places(pass, from, to).inbox.at(j), {});
}

ir::Status Mailboxes::send(const ir::Task& task, const Carry& carry) {
  const auto& message = std::get<ir::Send>(task.payload);
  const std::uint32_t j = index_of(message.micro_batch);
  Places& between = places(message.pass, index_of(task.stage), index_of(message.peer));
  if (between.outbox.at(j).empty()) {
    return not_arrived("tensor to send");
  }
  Message leaving = std::exchange(between.outbox[j], {});
  if (ir::Status status = change(leaving, carry); !status.ok()) {
    return status;
  }
  between.wire[j] = std::move(leaving);
  return {};
}

ir::Status Mailboxes::receive(const ir::Task& task, const Carry& bring) {
  const auto& message = std::get<ir::Receive>(task.payload);
  const std::uint32_t j = index_of(message.micro_batch);
  Places& between = places(message.pass, index_of(message.peer), index_of(task.stage));
  if (between.wire.at(j).empty()) {
    return not_arrived("message");
  }
  Message arrived = std::exchange(between.wire[j], {});
  if (ir::Status status = change(arrived, bring); !status.ok()) {
    return status;
  }
  between.inbox[j] = std::move(arrived);
  return {};
}

std::optional<Parcel> Mailboxes::collect(ir::TaskId id) {
  const ir::Task& task = schedule_->task(id);
  const auto* message = std::get_if<ir::Send>(&task.payload);
  if (message == nullptr) {
    return std::nullopt;
  }
  Places& between = places(message->pass, index_of(task.stage), index_of(message->peer));
  Parcel parcel;
  for (const torch::Tensor& tensor :
       std::exchange(between.wire.at(index_of(message->micro_batch)), {})) {
    parcel.tensors.push_back(pack(tensor));
  }
  return parcel;
}

ir::Status Mailboxes::deliver(ir::TaskId id, Parcel parcel) {
  const ir::Task& task = schedule_->task(id);
  const auto* message = std::get_if<ir::Send>(&task.payload);
  if (message == nullptr) {
    return parcel.tensors.empty()
               ? ir::Status()
               : ir::Status(bad_message(ir::to_text(task) + " came with tensors, which only a "
                                                            "send has"));
  }
  Message tensors;
  tensors.reserve(parcel.tensors.size());
  for (const PackedTensor& packed : parcel.tensors) {
    ir::Result<torch::Tensor> tensor = unpack(packed);
    if (!tensor.ok()) {
      return tensor.error();
    }
    tensors.push_back(std::move(tensor).value());
  }
  places(message->pass, index_of(task.stage), index_of(message->peer))
      .wire.at(index_of(message->micro_batch)) = std::move(tensors);
  return {};
}

ir::Bytes Mailboxes::bytes() const {
  ir::Bytes bytes = 0;
  for (const std::vector<Places>& of_pass : places_) {
    for (const Places& between : of_pass) {
      bytes += bytes_in(between.outbox) + bytes_in(between.wire) + bytes_in(between.inbox);
    }
  }
  return bytes;
}

}  // namespace xpipe::executor::nn
