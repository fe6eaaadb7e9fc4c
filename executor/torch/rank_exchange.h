// Members of an exchange in other processes: what a member brings travels with the news that the
// task before its part is done. No part of an exchange starts before that news has come from all
// (scheduler/exchange_pass.h), so all tensors are there when the first part asks for them, and
// nobody waits within a task. What waits is the task, as for any other of another process: bounded
// by the time-out, ended by the first failure of any rank, and in no order that could stall.
//
//   rank 0   0B3 --news and gradients--\   /--> 0ALLREDUCE0 (replica 0): g0 + g1
//   rank 1   0B3 --news and gradients--/\  \--> 0ALLREDUCE0 (replica 1): g0 + g1
//
// Thread-safety: all but begin_segment() from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "executor/parcel.h"
#include "executor/torch/gradient_exchange.h"
#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// One that takes part in an exchange: its rank in the group.
struct ExchangeMember {
  ExchangeKey key;
  std::size_t rank = 0;

  auto operator<=>(const ExchangeMember&) const = default;
};

class RankExchange final : public Mail, public PeerExchange {
 public:
  /// What a member that is here brings, by parameter. Called on the thread of the task before.
  using Bring = std::function<Tensors(const ExchangeMember&)>;

  /// `rest`: everything else that travels; outlives this.
  explicit RankExchange(Mail& rest) : rest_(rest) {}

  /// `brought`: the members that are ready when a task is done, in all processes alike.
  void begin_segment(std::map<ir::TaskId, std::vector<ExchangeMember>> brought, Bring bring);

  // Mail
  [[nodiscard]] std::optional<Parcel> collect(ir::TaskId task) override;
  [[nodiscard]] ir::Status deliver(ir::TaskId task, Parcel parcel) override;

  /// Does not block. Errors: Internal "no-member" for one whose news has not come.
  ir::Status complete(const ExchangeKey& key,
                      std::vector<std::optional<Tensors>>& members) override;

 private:
  Mail& rest_;
  std::map<ir::TaskId, std::vector<ExchangeMember>> brought_;
  Bring bring_;
  std::mutex mutex_;
  std::map<ExchangeMember, Tensors> arrived_;
};

}  // namespace xpipe::executor::nn
