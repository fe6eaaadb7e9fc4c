#include "executor/torch/rank_exchange.h"

#include <string>

#include "executor/torch/mailboxes.h"

namespace xpipe::executor::nn {

namespace {

ir::Error bad_gradients(std::string what) {
  return ir::make_error(ir::ErrorKind::Runtime, "bad-message", "", std::move(what));
}

}  // namespace

void RankExchange::begin_segment(std::map<ir::TaskId, std::vector<ExchangeMember>> brought,
                                 Bring bring) {
  brought_ = std::move(brought);
  bring_ = std::move(bring);
  arrived_.clear();
}

/// The first tensor says of each member's parameters whether there is a gradient; those that are
/// there follow.
std::optional<Parcel> RankExchange::collect(ir::TaskId task) {
  const auto found = brought_.find(task);
  if (found == brought_.end()) {
    return rest_.collect(task);
  }
  std::string there;
  Parcel parcel;
  for (const ExchangeMember& member : found->second) {
    for (const torch::Tensor& tensor : bring_(member)) {
      there += tensor.defined() ? '1' : '0';
      if (tensor.defined()) {
        parcel.tensors.push_back(pack(tensor));
      }
    }
    there += '.';
  }
  parcel.tensors.insert(parcel.tensors.begin(), parcel_of(std::move(there)).tensors.front());
  return parcel;
}

ir::Status RankExchange::deliver(ir::TaskId task, Parcel parcel) {
  const auto found = brought_.find(task);
  if (found == brought_.end()) {
    return rest_.deliver(task, std::move(parcel));
  }
  const std::vector<ExchangeMember>& members = found->second;
  const std::vector<PackedTensor>& tensors = parcel.tensors;
  if (tensors.empty()) {
    return bad_gradients("the news of a task that an exchange follows came without tensors");
  }
  const std::string there = bytes_of({.tensors = {tensors.front()}});
  std::vector<Tensors> of_members(1);
  std::size_t next = 1;
  for (const char sign : there) {
    if (sign == '.') {
      of_members.emplace_back();
    } else if (sign == '0') {
      of_members.back().emplace_back();
    } else if (next < tensors.size()) {
      ir::Result<torch::Tensor> tensor = unpack(tensors[next++]);
      if (!tensor.ok()) {
        return tensor.error();
      }
      of_members.back().push_back(std::move(tensor).value());
    } else {
      return bad_gradients("gradients are missing");
    }
  }
  if (of_members.size() != members.size() + 1 || next != tensors.size()) {
    return bad_gradients("gradients of " + std::to_string(of_members.size() - 1) +
                         " stages came where " + std::to_string(members.size()) + " were expected");
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t m = 0; m < members.size(); ++m) {
    arrived_[members[m]] = std::move(of_members[m]);
  }
  return {};
}

ir::Status RankExchange::complete(const ExchangeKey& key,
                                  std::vector<std::optional<Tensors>>& members) {
  const std::lock_guard lock(mutex_);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank]) {
      continue;
    }
    auto arrived = arrived_.extract({.key = key, .rank = rank});
    if (arrived.empty()) {
      return ir::make_error(ir::ErrorKind::Internal, "no-member", "",
                            "the gradients of member " + std::to_string(rank) +
                                ", which another process holds, have not come before this task");
    }
    members[rank] = std::move(arrived.mapped());
  }
  return {};
}

}  // namespace xpipe::executor::nn
