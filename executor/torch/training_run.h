// One training run: the stages, the tensors that travel between them, and the handlers that do the
// tasks of a schedule. Trainer owns one; tests build their own from a model of theirs.
//
//   stage k forward -> outbox -> SEND -> wire -> RECV -> inbox -> stage k + 1 forward
//   (two stages on one device: outbox and inbox are one, no messages)
//
// Thread-safety: handlers of different stages may run at the same time; each place of a mailbox is
// written and read in an order that the schedule's edges give.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "executor/handlers.h"
#include "executor/torch/dataset.h"
#include "executor/torch/prediction_probe.h"
#include "executor/torch/sample_order.h"
#include "executor/torch/stage.h"
#include "executor/torch/trainer.h"
#include "ir/schedule.h"

namespace xpipe::executor::nn {

struct RunOptions {
  OptimizerConfig optimizer;
  PredictionForm prediction;
  bool predicts = false;   ///< some schedule of the run predicts: keep the history for it
  std::uint64_t seed = 0;  ///< of the dropouts' masks
  bool stop_on_nan = true;
  std::uint32_t prediction_error_every = 0;
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(const MiniBatchRecord&)> on_mini_batch;
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
  /// `parts`: the layers of each stage. `samples` must outlive the run.
  TrainingRun(std::vector<std::vector<Layer>> parts, const Samples& samples, RunOptions options);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Requires: as many stages as there are parts; as many mini-batches as the schedule has, each
  /// with at least T samples. `schedule` must outlive the segment.
  void begin_segment(const ir::Schedule& schedule, Segment segment);

  /// Handlers for every kind that the four policies use. They refer to this run.
  [[nodiscard]] HandlerTable handlers();

  /// Records of the segment that has just ended, prediction errors included.
  [[nodiscard]] std::vector<MiniBatchRecord> take_records();

  [[nodiscard]] std::vector<Stage>& stages() { return stages_; }

  [[nodiscard]] const std::vector<Stage>& stages() const { return stages_; }

  [[nodiscard]] ir::Bytes probe_bytes() const;

 private:
  /// Places by micro-batch, between stage k and k + 1.
  struct Boundary {
    std::vector<torch::Tensor> outbox;
    std::vector<torch::Tensor> wire;
    std::vector<torch::Tensor> inbox;
  };

  using TaskWork = ir::Status (TrainingRun::*)(const ir::Task&);

  [[nodiscard]] Handler handler(TaskWork work);
  ir::Status forward(const ir::Task& task);
  ir::Status backward(const ir::Task& task);
  ir::Status predict(const ir::Task& task);
  ir::Status step(const ir::Task& task);
  ir::Status stash(const ir::Task& task);
  ir::Status release(const ir::Task& task);
  ir::Status send(const ir::Task& task);
  ir::Status receive(const ir::Task& task);

  [[nodiscard]] ir::Status record_loss(std::uint32_t mini_batch,
                                       std::uint32_t micro_batch,
                                       const MicroBatchLoss& loss);
  [[nodiscard]] SampleRange samples_of(std::uint32_t micro_batch) const;
  [[nodiscard]] Boundary& boundary(ir::Pass pass, std::size_t between);
  [[nodiscard]] bool same_device(std::size_t a, std::size_t b) const;
  void post(ir::Pass pass, std::size_t from, std::size_t to, std::uint32_t j, torch::Tensor tensor);

  const ir::Schedule* schedule_ = nullptr;  ///< of the segment
  const Samples& samples_;
  RunOptions options_;
  std::vector<Stage> stages_;
  std::vector<PredictionProbe> probes_;              ///< by stage
  std::array<std::vector<Boundary>, 2> boundaries_;  ///< by pass, then by the earlier stage
  Segment segment_;
  std::vector<MiniBatchRecord> records_;
};

/// Whether any task of `schedule` predicts.
[[nodiscard]] bool predicts(const ir::Schedule& schedule);

}  // namespace xpipe::executor::nn
