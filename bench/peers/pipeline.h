// Our contenders: a policy on two stages, a thread each, and the limit that no pipeline passes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/handover.h"

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/peers.h"
#include "executor/torch/dataset.h"
#include "executor/torch/skips.h"
#include "executor/torch/stage.h"
#include "executor/torch/training_run.h"
#include "ir/schedule.h"

namespace xpipe::bench {

struct Sizes {
  std::string work;  ///< "W1", "W2"
  std::uint32_t micro_batches = 4;
  std::uint32_t cut = 0;  ///< layers of the first of two stages
};

/// Minor page faults of this process so far: memory that the kernel had to give, page by page.
[[nodiscard]] double page_faults_so_far();

/// One burst, in seconds a mini-batch.
struct Pace {
  double steady_s = 0.0;  ///< between the ends of the first and of the last but one mini-batch
  double whole_s = 0.0;   ///< of the makespan: fill and drain included
  std::array<double, 2> busy_s{};  ///< by stage: tasks of its compute lane, over the steady part
  double no_overhead_s = 0.0;      ///< as steady_s, if nothing but tasks took time; 0: not told
  double prediction_s = 0.0;       ///< of the stage that predicts longest, the same
  double page_faults = 0.0;    ///< minor ones of the process a mini-batch, fill and drain included
  std::vector<double> losses;  ///< by mini-batch
};

/// A policy on the `cpu` device; keeps training from burst to burst.
class Pipeline {
 public:
  /// `peers`: the process that has the other stage; nullptr: both are here. Outlives this.
  Pipeline(const std::string& policy,
           const Sizes& sizes,
           const Handover& handover,
           executor::Peers* peers = nullptr);

  /// Trains `mini_batches`, at least 3, as one segment. Where there are peers, all do so at once,
  /// and the pace is rank 0's to tell.
  [[nodiscard]] Pace burst(std::uint32_t mini_batches);

 private:
  [[nodiscard]] const ir::Schedule& schedule_for(std::uint32_t mini_batches);

  struct SteadyPart {
    ir::Nanos begin = 0;
    ir::Nanos end = 0;
  };

  [[nodiscard]] SteadyPart steady_part(const ir::Timeline& timeline) const;
  [[nodiscard]] Pace measure(const ir::Timeline& timeline,
                             const std::vector<executor::nn::MiniBatchRecord>& records) const;

  std::string policy_;
  Sizes sizes_;
  executor::Peers* peers_;
  executor::nn::Samples samples_;
  std::vector<std::vector<executor::nn::Layer>> parts_;  ///< by stage; empty: another process's
  std::vector<executor::nn::StageWiring> wiring_;
  std::unique_ptr<ir::Schedule> schedule_;
  std::unique_ptr<executor::nn::TrainingRun> run_;
  executor::HandlerTable handlers_;
  std::unique_ptr<executor::CpuPool> pool_;
  std::unique_ptr<executor::CpuBackend> backend_;
};

/// Both stages at once, each in its thread and on inputs that are ready: forward, backward, step,
/// and nobody waits for the other. A pipeline without bubbles is as fast as the slower of the two.
class Limit {
 public:
  /// Stage k keeps `in_flight[k]` micro-batches between forward and backward: 1 is the fastest a
  /// stage can be, 2 - k is what 1F1B asks of it.
  Limit(const Sizes& sizes, const Handover& handover, std::array<std::uint32_t, 2> in_flight);

  /// Seconds a mini-batch by stage; both go on until each has made `mini_batches`.
  [[nodiscard]] std::array<double, 2> burst(std::uint32_t mini_batches);

 private:
  [[nodiscard]] double run(std::size_t k, std::uint32_t mini_batches);
  void forward(std::size_t k, ir::MicroBatch j, const ir::WeightRead& weights);

  Sizes sizes_;
  std::array<std::uint32_t, 2> in_flight_;
  std::vector<std::unique_ptr<executor::nn::Stage>> stages_;
  torch::Tensor input_;
  torch::Tensor middle_;
  torch::Tensor labels_;
  std::uint32_t samples_ = 0;  ///< of a mini-batch
  std::atomic<int> done_{0};   ///< stages that have made their mini-batches
  std::unique_ptr<executor::CpuPool> pool_;
};

}  // namespace xpipe::bench
