// Trains a built-in model for real, from compiled schedules: an epoch is one segment or several
// (segments.h), each drained at its end; at the end of the epoch the model is evaluated. What is
// computed when, and on which weights, is the schedule's; this adds data, loss and records. No
// torch in this header.
//
//   auto trainer = Trainer::create(config);                     // model and data are there
//   const ScheduleSource source = [&](std::uint32_t micro_batches, std::uint32_t mini_batches) {
//     return compile(policy, {.stages = facts.stages, .micro_batches = micro_batches,
//                             .mini_batches = mini_batches}, facts.stage_graph);
//   };
//   InlineBackend backend;                                      // or a CpuBackend, ...
//   auto result = trainer.value().train(source, backend, {.on_epoch = print});
//
// Every train() begins from the seed, or the checkpoint, again; one seed gives the same bits on
// every backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/gpu_transport.h"
#include "executor/handlers.h"
#include "executor/peers.h"
#include "executor/torch/segments.h"
#include "executor/torch/skips.h"
#include "executor/torch/train_config.h"
#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"
#include "scheduler/stage_graph.h"

namespace xpipe::executor::nn {

struct Model;
struct SampleShape;
/// As in executor/torch/model.h.
using ModelFactory = std::function<ir::Result<Model>(
    const SampleShape& input, std::int64_t classes, std::uint64_t seed)>;

/// A weight that two stages share: parameter `first_parameter` of stage `first`, by its place in
/// Stage::weights(), is that of the later stage `second`. Both begin alike.
struct WeightTie {
  std::size_t first = 0;
  std::size_t first_parameter = 0;
  std::size_t second = 0;
  std::size_t second_parameter = 0;
};

/// What a schedule for this run must look like, and what there is to print before it starts.
struct TrainFacts {
  std::uint32_t stages = 0;
  std::vector<std::uint32_t> partition;    ///< layers a stage
  std::uint32_t mini_batches = 0;          ///< of one epoch
  std::uint32_t segment_mini_batches = 0;  ///< of the longest segment of an epoch
  std::uint32_t last_batch_samples = 0;    ///< of an epoch's last mini-batch
  std::uint32_t dropped_samples = 0;       ///< an epoch; LastBatch::Drop
  std::uint32_t train_samples = 0;
  std::uint32_t test_samples = 0;
  std::string data_kind;            ///< Dataset::kind: "mnist", "text", ...
  std::vector<std::string> layers;  ///< names, in order
  bool has_batch_norm = false;
  std::string resumed_from;  ///< the checkpoint; empty: the beginning
  Position resumed_at;
  /// Hashes of the samples and of the model at the start, where several processes train.
  std::string data_content;
  std::string model_content;
  std::vector<std::string> notes;              ///< remarks for people
  std::vector<std::int64_t> stage_parameters;  ///< trainable numbers, by stage
  std::vector<WeightTie> ties;                 ///< across stages
  std::vector<StageWiring> wiring;             ///< by stage: what crosses its borders
  /// Ties, and bytes of the largest micro-batch at each cut, T as configured.
  scheduler::StageGraph stage_graph;
};

/// One mini-batch, 0-based within its epoch.
struct MiniBatchRecord {
  std::uint32_t epoch = 0;
  std::uint32_t mini_batch = 0;
  std::uint32_t samples = 0;
  double loss = 0.0;      ///< mean over its samples, on the weights its forwards read
  double accuracy = 0.0;  ///< of the same forwards
  /// Of all stages together before clipping, where a schedule clips.
  std::optional<double> gradient_norm;
  ir::Nanos ended = 0;  ///< its last step, over the makespans since the start of the epoch
  /// By stage, for mini-batches that were probed; absent where the stage does not predict for
  /// forwards, or where the segment ended before the step aimed at. (design.md §10)
  std::vector<std::optional<double>> prediction_error;
  std::vector<std::optional<double>> unpredicted_error;
};

struct EpochRecord {
  std::uint32_t epoch = 0;
  double train_loss = 0.0;  ///< mean over the samples trained
  double train_accuracy = 0.0;
  double test_loss = 0.0;
  double test_accuracy = 0.0;
  ir::Nanos train_time = 0;  ///< makespans of its segments
  double samples_per_s = 0.0;
};

/// Bytes a stage (each replica of it) holds at the end, beside activations.
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
  ir::Nanos resumed_time = 0;                 ///< of the first epoch, before it was resumed
  std::vector<StageMemory> memory;            ///< by stage
  ir::Bytes probe_bytes = 0;                  ///< most that probes held at once, over all stages
  std::uint32_t timeline_epoch = 0;
  std::uint32_t timeline_first = 0;  ///< mini-batch of the epoch that it begins with
  ir::Schedule schedule;             ///< of that epoch's longest segment, the first of equals
  ir::Timeline timeline;             ///< of the same segment
  ir::Nanos timeline_began = 0;      ///< wall-clock time of its 0, ns since 1970
  std::uint64_t weights_hash = 0;    ///< FNV-1a of all master weights: equal bits, equal hash
};

struct TrainCallbacks {
  /// After each mini-batch, without its prediction errors; on the thread of the last stage.
  std::function<void(const MiniBatchRecord&)> on_mini_batch;
  /// After each epoch's evaluation, on the caller's thread, with the mini-batches of that epoch.
  std::function<void(const EpochRecord&, const std::vector<MiniBatchRecord>&)> on_epoch;
  /// Looked at before every task; set from a signal handler. Ends the run as Interrupted.
  const std::atomic<bool>* interrupted = nullptr;
  /// The other processes of the run; null: there are none. With them, the result is whole on rank
  /// 0.
  Peers* peers = nullptr;
  /// How GPUs of this process reach those of others; by default through the host.
  GpuWay gpu_way = {};
  /// May replace or wrap handlers before each epoch: tests inject faults and record.
  std::function<void(HandlerTable&)> wrap_handlers;
};

/// Compiles the schedule of a segment. The sizes are its whole input: the same sizes, the same
/// schedule. A policy whose unit is the mini-batch may answer with T = 1.
using ScheduleSource = std::function<ir::Result<ir::Schedule>(std::uint32_t micro_batches,
                                                              std::uint32_t mini_batches)>;

class Trainer {
 public:
  /// Builds the model once, reads the data, and opens what config.checkpoint names. `peers`: the
  /// other processes of the run, which create theirs at the same time; files of checkpoints are
  /// rank 0's; outlives the trainer. Errors: Usage, BadInput; failures of peers.
  [[nodiscard]] static ir::Result<Trainer> create(const TrainConfig& config,
                                                  Peers* peers = nullptr);
  /// The same with a model of the caller's (own_model.h); of `config`, the model's name and options
  /// say nothing but how long samples of text are.
  [[nodiscard]] static ir::Result<Trainer> create(const TrainConfig& config,
                                                  const ModelFactory& factory,
                                                  Peers* peers = nullptr);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  [[nodiscard]] const TrainFacts& facts() const;

  /// `source` is asked once for each shape of a segment that is needed again soon; its schedules
  /// are legal, have facts().stages stages and the sizes asked for (or T = 1), and all run on
  /// `backend`. Schedules of every T that the training needs are compiled before it starts.
  /// Errors: those of `source`; Usage when a schedule is another's; Runtime for a loss that is no
  /// number, naming the mini-batch, for failures of LibTorch, and for checkpoints and exports that
  /// cannot be written; BadInput for a checkpoint that cannot be loaded; Interrupted; Internal when
  /// a slot does not hold what a task expects. The caller's thread gets the configured intra-op
  /// threads for the time of the call; the backend's own threads must have been given as many
  /// (set_intra_op_threads()). A backend that leaves a task behind after a time-out must be gone
  /// before this trainer is, and before its next train().
  [[nodiscard]] ir::Result<TrainResult> train(const ScheduleSource& source,
                                              Backend& backend,
                                              const TrainCallbacks& callbacks = {});

  /// Writes the model of the last train() to `path` as what it was read from, a TorchScript
  /// archive or several (script_model.h). Errors: Usage when there was no train() or the model came
  /// from no archive; Runtime for the disk. Of several processes all call it, and rank 0 writes.
  [[nodiscard]] ir::Status save_model(const std::string& path) const;

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
