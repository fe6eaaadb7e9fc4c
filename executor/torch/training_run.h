// One training run: the stages, the tensors that travel between them (executor/torch/mailboxes.h),
// and the handlers that do the tasks of a schedule. Trainer owns one; tests build their own from a
// model of theirs.
//
// Thread-safety: handlers of different stages may run at the same time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "executor/gpu_transport.h"
#include "executor/handlers.h"
#include "executor/torch/gradient_exchange.h"
#include "executor/torch/input_loader.h"
#include "executor/torch/mailboxes.h"
#include "executor/torch/prediction_probe.h"
#include "executor/torch/rank_exchange.h"
#include "executor/torch/rank_records.h"
#include "executor/torch/sample_order.h"
#include "executor/torch/sample_source.h"
#include "executor/torch/stage.h"
#include "executor/torch/step_weights.h"
#include "executor/torch/trainer.h"
#include "ir/replicas.h"
#include "ir/schedule.h"

namespace xpipe::executor::nn {

struct RunOptions {
  OptimizerConfig optimizer;
  PredictionForm prediction;
  bool predicts = false;            ///< some schedule of the run predicts: keep the history for it
  bool splits_backward = false;     ///< some schedule of the run has backwards in two parts
  std::optional<double> clip_norm;  ///< of the gradients of all stages, where a schedule clips
  std::vector<WeightTie> ties;      ///< across stages
  std::vector<StageWiring> wiring;  ///< by stage; empty: each reads the one before it
  std::vector<std::uint32_t> replicas;  ///< by stage, in every schedule of the run; empty: one each
  std::uint64_t seed = 0;               ///< of the dropouts' masks
  LossKind loss = LossKind::CrossEntropy;
  LossReduction loss_reduction = LossReduction::Mean;
  bool stop_on_nan = true;
  std::uint32_t prediction_error_every = 0;
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(const MiniBatchRecord&)> on_mini_batch;
  ComputeConfig compute;
  std::chrono::milliseconds time_out = std::chrono::minutes(5);  ///< of a wait for samples
  std::vector<ir::DeviceId> replica_devices = {};  ///< with compute.gpus: of each replica's layers
  std::function<bool(ir::DeviceId)> is_remote = {};  ///< run by another process; empty: none is
  GpuWay gpu_way = {};                               ///< to and from those
  std::vector<bool> elsewhere = {};  ///< replicas that other processes hold; empty: none
};

/// The samples of one segment.
struct Segment {
  std::uint32_t epoch = 0;
  std::uint32_t first = 0;         ///< its first mini-batch, of the epoch
  std::uint64_t first_of_run = 0;  ///< the same one, counted over the run
  std::vector<std::uint32_t> order;
  std::vector<SampleRange> mini_batches;
};

class TrainingRun {
 public:
  /// `parts`: the layers of each replica, those of stage 0 first (without replication: of each
  /// stage), none for one that is elsewhere; those of one stage begin with equal weights and share
  /// no tensor. `samples` must outlive the run.
  TrainingRun(std::vector<std::vector<Layer>> parts,
              const SampleSource& samples,
              RunOptions options);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Requires: as many stages and replicas as the options say; as many mini-batches as the schedule
  /// has, each with at least T samples. `schedule` must outlive the segment.
  void begin_segment(const ir::Schedule& schedule, Segment segment);

  /// Handlers for every kind. They refer to this run.
  [[nodiscard]] HandlerTable handlers();

  /// Ends the records of mini-batches whose losses a GPU has computed by now; `wait`: of all.
  /// Errors: Runtime "loss-not-finite".
  [[nodiscard]] ir::Status collect_losses(bool wait);

  /// The losses of mini-batches of which other processes have a part, too. At the segment's end.
  [[nodiscard]] std::vector<LossPart> open_losses() const;
  /// Takes those of the others, and ends the records that are whole with them. Errors: Runtime
  /// "loss-not-finite".
  [[nodiscard]] ir::Status add_losses(const std::vector<LossPart>& parts);

  /// Records of the segment that has just ended, prediction errors included. Requires:
  /// collect_losses(true).
  [[nodiscard]] std::vector<MiniBatchRecord> take_records();

  /// By replica, in the order of ir::Replicas; without replication by stage.
  [[nodiscard]] std::vector<Stage>& stages() { return stages_; }

  [[nodiscard]] const std::vector<Stage>& stages() const { return stages_; }

  /// The first replica of each stage: all have the same weights. Batch norms' running statistics
  /// are each replica's own, of the micro-batches that it has seen.
  [[nodiscard]] std::vector<Stage*> first_replicas();

  /// Made by every stage's optimizer since the start of the run.
  [[nodiscard]] std::uint64_t steps() const;

  /// What travels, where several processes train.
  [[nodiscard]] Mail& mail() { return rank_exchange_; }

  /// The messages between stages.
  [[nodiscard]] const Mailboxes& mailboxes() const { return mailboxes_; }

  [[nodiscard]] ir::Bytes probe_bytes() const;

 private:
  using TaskWork = ir::Status (TrainingRun::*)(const ir::Task&);
  using InputGradients = ir::Result<Tensors> (Stage::*)(ir::MicroBatch,
                                                        const Tensors&,
                                                        const ir::WeightRead&);

  [[nodiscard]] Handler handler(TaskWork work);
  ir::Status forward(const ir::Task& task);
  ir::Status recompute(const ir::Task& task);
  ir::Status backward(const ir::Task& task);
  ir::Status backward_input(const ir::Task& task);
  /// What both have in common: the gradients that came from above in, the inputs' sent down.
  ir::Status send_down(const ir::Task& task,
                       ir::MicroBatch micro_batch,
                       const ir::WeightRead& weights,
                       InputGradients compute);
  ir::Status backward_weight(const ir::Task& task);
  ir::Status predict(const ir::Task& task);
  ir::Status step(const ir::Task& task);
  ir::Status stash(const ir::Task& task);
  ir::Status release(const ir::Task& task);
  ir::Status send(const ir::Task& task);
  ir::Status receive(const ir::Task& task);
  [[nodiscard]] bool meets_another(const ir::Lane& lane) const;
  ir::Status all_reduce(const ir::Task& task);
  ir::Status sum_tied(const ir::Task& task);
  ir::Status clip_norm(const ir::Task& task);

  [[nodiscard]] ir::Status record_loss(std::uint32_t mini_batch,
                                       std::uint32_t micro_batch,
                                       MicroBatchLoss loss);
  [[nodiscard]] ir::Status collect_computed(bool wait);
  [[nodiscard]] ir::Status end_record(std::uint32_t mini_batch);
  [[nodiscard]] ir::Status check_loss(std::uint32_t mini_batch, std::uint32_t micro_batch) const;
  [[nodiscard]] SampleRange range_of(std::uint32_t micro_batch) const;
  /// Numbers of the samples of one micro-batch; those of the segment's order.
  [[nodiscard]] std::span<const std::uint32_t> samples_of(std::uint32_t micro_batch) const;
  void begin_loader();
  [[nodiscard]] ir::Result<Tensors> inputs_of(std::size_t stage, std::uint32_t micro_batch);

  [[nodiscard]] Stage& stage_of(const ir::Task& task) { return stages_[replicas_->of(task)]; }

  [[nodiscard]] bool is_here(std::size_t replica) const {
    return options_.elsewhere.empty() || !options_.elsewhere[replica];
  }

  void begin_rank_exchanges();
  [[nodiscard]] std::vector<std::size_t> replicas_in(const ExchangeKey& key) const;
  [[nodiscard]] std::vector<Stage*> members_of(const ExchangeKey& key);
  [[nodiscard]] std::vector<std::vector<std::size_t>> tied_parameters(const ExchangeKey& key) const;
  [[nodiscard]] std::vector<bool> counted_parameters(std::size_t stage) const;
  [[nodiscard]] Tensors brought_by(const ExchangeMember& member);

  [[nodiscard]] bool is_first_replica(const ir::Task& task) const;

  void read_schedule();
  [[nodiscard]] std::size_t place_of(std::size_t stage, std::uint32_t micro_batch) const;
  [[nodiscard]] Keep keep_of(const ir::Task& task) const;
  [[nodiscard]] ir::Result<Tensors> take_gradients(std::size_t stage, std::uint32_t j);

  const ir::Schedule* schedule_ = nullptr;  ///< of the segment
  const SampleSource& samples_;
  InputLoader loader_;
  RunOptions options_;
  std::optional<ir::Replicas> replicas_;  ///< of the segment's schedule
  std::vector<Stage> stages_;             ///< by replica
  std::vector<std::size_t> first_;        ///< by stage: its first replica
  Mailboxes mailboxes_;
  RankExchange rank_exchange_{mailboxes_};
  GradientExchange exchange_{&rank_exchange_};
  StepWeights step_weights_;
  std::vector<bool> recomputed_;  ///< by place_of(); empty: nothing is
  Keep kept_for_recompute_ = Keep::Input;
  std::vector<PredictionProbe> probes_;  ///< by stage, of its first replica
  Segment segment_;
  std::mutex record_mutex_;  ///< of the two below, while tasks run
  std::vector<MiniBatchRecord> records_;
  std::vector<MicroBatchLoss> losses_;  ///< by micro-batch
  std::deque<std::uint32_t> computed_;  ///< mini-batches whose losses are all on their way
};

/// Whether any task of `schedule` predicts.
[[nodiscard]] bool predicts(const ir::Schedule& schedule);
/// Whether any backward of it comes in two parts.
[[nodiscard]] bool splits_backward(const ir::Schedule& schedule);
/// How many replicas each stage has.
[[nodiscard]] std::vector<std::uint32_t> replicas_of_stages(const ir::Schedule& schedule);
/// Of each of them, in the order of ir::Replicas.
[[nodiscard]] std::vector<ir::DeviceId> replica_devices(const ir::Schedule& schedule);

}  // namespace xpipe::executor::nn
