#include "executor/torch/gradient_exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace xpipe::executor::nn {

namespace {

/// Adds up by rank, into the tensors of the first member that has one; with `keeps` into new ones.
/// Those of the others stay.
Tensors sum_by_rank(const std::vector<std::optional<Tensors>>& members, bool keeps) {
  const torch::NoGradGuard no_grad;
  Tensors sum(members.front()->size());
  for (std::size_t p = 0; p < sum.size(); ++p) {
    std::size_t added = 0;
    for (const std::optional<Tensors>& member : members) {
      const torch::Tensor& part = member->at(p);
      if (!part.defined()) {
        continue;
      }
      if (added == 0) {
        sum[p] = part;
      } else if (added == 1 && keeps) {
        sum[p] = sum[p].add(part);
      } else {
        sum[p].add_(part);
      }
      ++added;
    }
    if (added == 1 && keeps) {
      sum[p] = sum[p].clone();
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

Tensors picked(const Tensors& tensors, const std::vector<std::size_t>& places) {
  Tensors some;
  some.reserve(places.size());
  for (const std::size_t place : places) {
    some.push_back(tensors.at(place));
  }
  return some;
}

/// The sum of squares of each tensor that is counted.
Tensors squares_of(const Tensors& gradients, const std::vector<bool>& counted) {
  const torch::NoGradGuard no_grad;
  Tensors squares(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (gradients[p].defined() && counted.at(p)) {
      squares[p] = gradients[p].to(torch::kFloat64).square().sum();
    }
  }
  return squares;
}

}  // namespace

GradientExchange::Group& GradientExchange::group(const ExchangeKey& key, std::size_t members) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Group>& entry = groups_[key];
  if (entry == nullptr) {
    entry = std::make_unique<Group>(members);
  }
  return *entry;
}

ir::Status GradientExchange::sum(const ExchangeKey& key, const std::vector<Stage*>& members) {
  std::vector<std::vector<std::size_t>> parameters(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] != nullptr) {
      parameters[m].resize(members[m]->weights().size());
      std::iota(parameters[m].begin(), parameters[m].end(), std::size_t{0});
    }
  }
  return sum(key, members, parameters);
}

ir::Status GradientExchange::sum(const ExchangeKey& key,
                                 const std::vector<Stage*>& members,
                                 const std::vector<std::vector<std::size_t>>& parameters) {
  Group& entry = group(key, members.size());
  const std::lock_guard lock(entry.mutex);
  if (!entry.done) {
    entry.done = sum_all(key, members, parameters);
  }
  return *entry.done;
}

ir::Status GradientExchange::sum_all(const ExchangeKey& key,
                                     const std::vector<Stage*>& members,
                                     const std::vector<std::vector<std::size_t>>& parameters) {
  std::vector<std::optional<Tensors>> parts(members.size());
  bool all_here = true;
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] != nullptr) {
      parts[m] = picked(members[m]->gradients(), parameters[m]);
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
  // What other processes get is on its way from where it is: it stays as it is.
  Tensors sum = sum_by_rank(parts, !all_here);
  bool is_given = all_here;
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] != nullptr) {
      Tensors gradients = members[m]->gradients();
      Tensors summed;
      if (all_here) {
        summed = copied_into(std::move(*parts[m]), sum);
      } else {
        summed = copied_into(is_given ? Tensors(sum.size()) : sum, sum);
        is_given = true;
      }
      for (std::size_t i = 0; i < summed.size(); ++i) {
        gradients[parameters[m][i]] = std::move(summed[i]);
      }
      members[m]->set_gradients(std::move(gradients));
    }
  }
  return {};
}

const Tensors& GradientExchange::squares(const ExchangeKey& key,
                                         std::size_t members,
                                         std::size_t m,
                                         const Stage& stage,
                                         const std::vector<bool>& counted) {
  Group& entry = group(key, members);
  std::call_once(entry.begun[m],
                 [&] { entry.squares[m] = squares_of(stage.gradients(), counted); });
  return *entry.squares[m];
}

ir::Result<double> GradientExchange::norm(const ExchangeKey& key,
                                          const std::vector<Stage*>& members,
                                          std::size_t own,
                                          const std::vector<std::vector<bool>>& counted) {
  Group& entry = group(key, members.size());
  // One's own first, then those that nobody has begun: with a thread each they run side by side.
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t m = (own + i) % members.size();
    if (members[m] != nullptr) {
      static_cast<void>(squares(key, members.size(), m, *members[m], counted[m]));
    }
  }
  const std::lock_guard lock(entry.mutex);
  if (!entry.done) {
    entry.done = ir::Status();
    if (std::ranges::find(members, nullptr) != members.end()) {
      XPIPE_CHECK(peers_ != nullptr) << "a member of an exchange is in no process";
      entry.done = peers_->complete(key, entry.squares);
    }
    for (std::size_t m = 0; entry.done->ok() && m < members.size(); ++m) {
      for (const torch::Tensor& square : *entry.squares[m]) {
        entry.norm += square.defined() ? square.item<double>() : 0.0;
      }
    }
    entry.norm = std::sqrt(entry.norm);
  }
  if (!entry.done->ok()) {
    return entry.done->error();
  }
  return entry.norm;
}

}  // namespace xpipe::executor::nn
