// Trains a built-in model for real, from a compiled schedule: each epoch is one segment, drained at
// its end, where the model is evaluated. What is computed when, and on which weights, is the
// schedule's; this adds data, loss and records. No torch in this header.
//
//   auto trainer = Trainer::create(config);                     // model and data are there
//   auto schedule = compile(policy, {.stages = facts.stages, .micro_batches = T,
//                                    .mini_batches = facts.mini_batches}, facts.stage_graph);
//   InlineBackend backend;                                      // or a CpuBackend, ...
//   auto result = trainer.value().train(schedule.value(), backend, {.on_epoch = print});
//
// Every train() begins from the seed again; one seed gives the same bits on every backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/handlers.h"
#include "executor/torch/train_config.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/stage_graph.h"

namespace xpipe::executor::nn {

/// What a schedule for this run must look like, and what there is to print before it starts.
struct TrainFacts {
  std::uint32_t stages = 0;
  std::vector<std::uint32_t> partition;  ///< layers a stage
  std::uint32_t mini_batches = 0;        ///< of one epoch: N of the schedule
  std::uint32_t dropped_samples = 0;     ///< an epoch; too few for a mini-batch
  std::uint32_t train_samples = 0;
  std::uint32_t test_samples = 0;
  std::string data_kind;                       ///< "mnist", "cifar10"
  std::vector<std::string> layers;             ///< names, in order
  std::vector<std::int64_t> stage_parameters;  ///< trainable numbers, by stage
  /// Bytes of the largest micro-batch at each cut, T as configured.
  scheduler::StageGraph stage_graph;
};

/// One mini-batch, 0-based within its epoch.
struct MiniBatchRecord {
  std::uint32_t epoch = 0;
  std::uint32_t mini_batch = 0;
  std::uint32_t samples = 0;
  double loss = 0.0;      ///< mean over its samples, on the weights its forwards read
  double accuracy = 0.0;  ///< of the same forwards
  ir::Nanos ended = 0;    ///< its last step, since the start of the epoch
  /// By stage, for mini-batches that were probed; absent where the stage does not predict for
  /// forwards, or where the epoch ended before the step aimed at. (design.md §10)
  std::vector<std::optional<double>> prediction_error;
  std::vector<std::optional<double>> unpredicted_error;
};

struct EpochRecord {
  std::uint32_t epoch = 0;
  double train_loss = 0.0;  ///< mean over the samples trained
  double train_accuracy = 0.0;
  double test_loss = 0.0;
  double test_accuracy = 0.0;
  ir::Nanos train_time = 0;  ///< makespan of the segment
  double samples_per_s = 0.0;
};

/// Bytes a stage holds at the end, beside activations.
struct StageMemory {
  ir::Bytes weights = 0;    ///< the master
  ir::Bytes slots = 0;      ///< all other slots
  ir::Bytes optimizer = 0;  ///< moments, and history that predictions need
  std::size_t weight_storages = 0;
  std::size_t parameters = 0;  ///< tensors
};

struct TrainResult {
  std::vector<EpochRecord> epochs;
  std::vector<MiniBatchRecord> mini_batches;  ///< of all epochs, in order
  std::vector<StageMemory> memory;            ///< by stage
  ir::Bytes probe_bytes = 0;                  ///< most that probes held at once, over all stages
  std::uint32_t timeline_epoch = 0;
  ir::Timeline timeline;           ///< of that epoch, task ids of the schedule
  ir::Nanos timeline_began = 0;    ///< wall-clock time of its 0, ns since 1970
  std::uint64_t weights_hash = 0;  ///< FNV-1a of all master weights: equal bits, equal hash
};

struct TrainCallbacks {
  /// After each mini-batch, without its prediction errors; on the thread of the last stage.
  std::function<void(const MiniBatchRecord&)> on_mini_batch;
  /// After each epoch's evaluation, on the caller's thread, with the mini-batches of that epoch.
  std::function<void(const EpochRecord&, const std::vector<MiniBatchRecord>&)> on_epoch;
  /// Looked at before every task; set from a signal handler. Ends the run as Interrupted.
  const std::atomic<bool>* interrupted = nullptr;
  /// May replace or wrap handlers before each epoch: tests inject faults and record.
  std::function<void(HandlerTable&)> wrap_handlers;
};

class Trainer {
 public:
  /// Builds the model once and reads the data. Errors: Usage, BadInput.
  [[nodiscard]] static ir::Result<Trainer> create(const TrainConfig& config);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  [[nodiscard]] const TrainFacts& facts() const;

  /// `schedule` is legal, has facts().stages stages and facts().mini_batches mini-batches, and T as
  /// configured, or 1. Errors: Usage when it is another's schedule; Runtime for a loss that is no
  /// number, naming the mini-batch, and for failures of LibTorch; Interrupted; Internal when a slot
  /// does not hold what a task expects.
  /// The caller's thread gets the configured intra-op threads for the time of the call; the
  /// backend's own threads must have been given as many (set_intra_op_threads()).
  /// A backend that leaves a task behind after a time-out must be gone before this trainer is, and
  /// before its next train().
  [[nodiscard]] ir::Result<TrainResult> train(const ir::Schedule& schedule,
                                              Backend& backend,
                                              const TrainCallbacks& callbacks = {});

 private:
  struct Parts;
  explicit Trainer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// How predictions extrapolate: from what the configuration says, with `bias` and `gamma` as the
/// schedule's options say where it leaves them open.
[[nodiscard]] PredictionForm prediction_form(const TrainConfig& config,
                                             const ir::Schedule& schedule);

}  // namespace xpipe::executor::nn
