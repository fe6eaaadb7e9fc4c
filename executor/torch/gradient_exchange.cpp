#include "executor/torch/gradient_exchange.h"

#include <utility>

namespace xpipe::executor::nn {

namespace {

/// Adds up by rank, into the tensors of the first member that has one. Those of the others stay.
Tensors sum_by_rank(std::vector<std::optional<Tensors>>& members) {
  const torch::NoGradGuard no_grad;
  Tensors sum(members.front()->size());
  for (std::optional<Tensors>& member : members) {
    for (std::size_t p = 0; p < sum.size(); ++p) {
      torch::Tensor& part = member->at(p);
      if (!part.defined()) {
        continue;
      }
      if (sum[p].defined()) {
        sum[p].add_(part);
      } else {
        sum[p] = part;
      }
    }
  }
  return sum;
}

/// `sum` in memory of the member's own.
Tensors copied_into(Tensors own, const Tensors& sum) {
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < sum.size(); ++p) {
    if (!sum[p].defined() || sum[p].is_same(own[p])) {
      continue;
    }
    if (own[p].defined()) {
      own[p].copy_(sum[p]);
    } else {
      own[p] = sum[p].clone();
    }
  }
  return own;
}

}  // namespace

GradientExchange::Group& GradientExchange::group(const ExchangeKey& key) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Group>& entry = groups_[key];
  if (entry == nullptr) {
    entry = std::make_unique<Group>();
  }
  return *entry;
}

ir::Status GradientExchange::sum(const ExchangeKey& key, const std::vector<Stage*>& members) {
  Group& entry = group(key);
  const std::lock_guard lock(entry.mutex);
  if (!entry.done) {
    entry.done = sum_all(key, members);
  }
  return *entry.done;
}

ir::Status GradientExchange::sum_all(const ExchangeKey& key, const std::vector<Stage*>& members) {
  std::vector<std::optional<Tensors>> parts(members.size());
  bool all_here = true;
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] != nullptr) {
      parts[m] = members[m]->gradients();
    } else {
      all_here = false;
    }
  }
  if (!all_here) {
    XPIPE_CHECK(peers_ != nullptr) << "a member of an exchange is in no process";
    if (ir::Status status = peers_->complete(key, parts); !status.ok()) {
      return status;
    }
  }
  const Tensors sum = sum_by_rank(parts);
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] != nullptr) {
      members[m]->set_gradients(copied_into(std::move(*parts[m]), sum));
    }
  }
  return {};
}

}  // namespace xpipe::executor::nn
