// What members of a group bring together before a step: the gradients of a stage's replicas, those
// of a weight that two stages share, the norms of all stages. The first member to come takes
// everybody's tensors, adds them up in the order of ranks and gives each member the sum; those that
// come later find it done. So the bits depend on the ranks alone, not on who comes first, nor on
// which processes the members are in:
//
//   member 0   here       g0 ─┐
//   member 1   elsewhere  g1 ─┼─ PeerExchange ─► ((g0 + g1) + g2) in every process
//   member 2   here       g2 ─┘
//
// The schedule lets no member of a group start before the gradients of all are there
// (ir::AllReduce, SumTied, ClipNorm), so a member that is here may be read on the thread of another
// one.
//
// Thread-safety: all but begin_segment() from any thread, begin_segment() while no task runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/stage.h"
#include "ir/ids.h"
#include "ir/status.h"
#include "ir/task.h"

namespace xpipe::executor::nn {

/// By parameter; undefined where a member has none.
using Tensors = std::vector<torch::Tensor>;

/// Names one exchange of a segment: the same in all processes.
struct ExchangeKey {
  ir::TaskKind kind = ir::TaskKind::AllReduce;
  ir::StageId stage{};  ///< whose replicas take part; of a tie the earlier stage; of norms 0
  ir::StageId peer{};   ///< of a tie the later stage
  ir::MiniBatch mini_batch{};

  bool operator==(const ExchangeKey&) const = default;
  auto operator<=>(const ExchangeKey&) const = default;
};

/// Members that are in other processes (rank_exchange.h).
class PeerExchange {
 public:
  PeerExchange() = default;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;
  virtual ~PeerExchange() = default;

  /// `members`, by rank in the group: those that are here have their tensors, those that are not
  /// get theirs. May block, bounded by the time-out. Called once a key and process, on a task's
  /// thread; keys in any order. Nobody writes to the tensors of those that are here after it.
  virtual ir::Status complete(const ExchangeKey& key,
                              std::vector<std::optional<Tensors>>& members) = 0;
};

class GradientExchange {
 public:
  /// `peers`: outlives this; nullptr when all members are here.
  explicit GradientExchange(PeerExchange* peers = nullptr) : peers_(peers) {}

  void begin_segment() { groups_.clear(); }

  /// Each of `members` (by rank; nullptr: in another process) gets the sum of the gradients of all.
  /// Every member that is here calls it. No memory but that of the gradients is held after it, and
  /// beside them only what came from other processes while it runs.
  [[nodiscard]] ir::Status sum(const ExchangeKey& key, const std::vector<Stage*>& members);

  /// The same of some parameters of each member: `parameters[m]` of member m, as many for all.
  [[nodiscard]] ir::Status sum(const ExchangeKey& key,
                               const std::vector<Stage*>& members,
                               const std::vector<std::vector<std::size_t>>& parameters);

  /// The square sums of one member's gradients that norm() will add up, where another process asks
  /// for them before. Requires: as norm(); `stage` is member m.
  [[nodiscard]] const Tensors& squares(const ExchangeKey& key,
                                       std::size_t members,
                                       std::size_t m,
                                       const Stage& stage,
                                       const std::vector<bool>& counted);

  /// The norm of the gradients of all `members` (one replica of each stage, in order; nullptr: in
  /// another process), called for member `own`, which need not be one of them. Each parameter
  /// counts once: of those with `counted[m][p]` false another member has a copy. Squares are added
  /// up in double, by parameter, so the bits do not depend on how the model is cut.
  [[nodiscard]] ir::Result<double> norm(const ExchangeKey& key,
                                        const std::vector<Stage*>& members,
                                        std::size_t own,
                                        const std::vector<std::vector<bool>>& counted);

 private:
  struct Group {
    explicit Group(std::size_t members) : begun(members), squares(members) {}

    std::mutex mutex;  ///< of what follows, but for the squares, of which each has its flag
    std::optional<ir::Status> done;
    double norm = 0.0;
    std::vector<std::once_flag> begun;
    std::vector<std::optional<Tensors>> squares;  ///< one number a parameter
  };

  [[nodiscard]] Group& group(const ExchangeKey& key, std::size_t members);
  [[nodiscard]] ir::Status sum_all(const ExchangeKey& key,
                                   const std::vector<Stage*>& members,
                                   const std::vector<std::vector<std::size_t>>& parameters);

  PeerExchange* peers_;
  std::mutex mutex_;
  std::map<ExchangeKey, std::unique_ptr<Group>> groups_;
};

}  // namespace xpipe::executor::nn
