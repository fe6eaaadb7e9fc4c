#include "executor/torch/train_config.h"

#include <array>
#include <cmath>
#include <utility>

#include "scheduler/policy.h"

namespace xpipe::executor::nn {

namespace {

constexpr std::array kOptimizers{
    std::pair{"sgd", OptimizerKind::Sgd}, std::pair{"adam", OptimizerKind::Adam},
    std::pair{"adamw", OptimizerKind::AdamW}, std::pair{"rmsprop", OptimizerKind::RmsProp}};

class Faults {
 public:
  void unless(bool good, const char* option, const std::string& found, const char* wanted) {
    if (!good) {
      error_.diagnostics.push_back({"bad-value", option, found + "; want " + wanted});
    }
  }

  [[nodiscard]] ir::Status status() && {
    return error_.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error_));
  }

 private:
  ir::Error error_{ir::ErrorKind::Usage, {}};
};

bool below_one(double value) {
  return value >= 0.0 && value < 1.0;
}

bool not_negative(double value) {
  return std::isfinite(value) && value >= 0.0;
}

}  // namespace

ir::Status check_config(const TrainConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  using std::to_string;
  Faults faults;
  faults.unless(config.stages >= 1, "--stages", to_string(config.stages), "1 or more");
  faults.unless(config.micro_batches >= 1, "--micro-batches", to_string(config.micro_batches),
                "1 or more");
  faults.unless(config.batch_size >= config.micro_batches && config.batch_size >= 1, "--batch-size",
                to_string(config.batch_size) + " samples for --micro-batches " +
                    to_string(config.micro_batches),
                "at least one sample a micro-batch");
  faults.unless(config.epochs >= 1, "--epochs", to_string(config.epochs), "1 or more");
  faults.unless(not_negative(optimizer.learning_rate), "--lr", to_string(optimizer.learning_rate),
                "a number that is not negative");
  faults.unless(not_negative(optimizer.weight_decay), "--weight-decay",
                to_string(optimizer.weight_decay), "a number that is not negative");
  faults.unless(not_negative(optimizer.momentum), "--momentum", to_string(optimizer.momentum),
                "a number that is not negative");
  faults.unless(
      optimizer.momentum == 0.0 || optimizer.kind == OptimizerKind::Sgd ||
          optimizer.kind == OptimizerKind::RmsProp,
      "--momentum",
      to_string(optimizer.momentum) + " with " + std::string(optimizer_name(optimizer.kind)),
      "it with sgd or rmsprop only; Adam's is beta1");
  const LearningRateSchedule& rates = optimizer.schedule;
  faults.unless(rates.shape != LearningRateShape::Step || rates.step_every >= 1, "--lr-step-every",
                to_string(rates.step_every), "1 or more");
  faults.unless(not_negative(rates.gamma), "--lr-gamma", to_string(rates.gamma),
                "a number that is not negative");
  faults.unless(
      rates.shape != LearningRateShape::Cosine || rates.total == 0 || rates.total > rates.warm_up,
      "--lr-total-steps", to_string(rates.total) + " with --warm-up " + to_string(rates.warm_up),
      "more steps than the warm-up has");
  faults.unless(below_one(optimizer.beta1), "--beta1", to_string(optimizer.beta1),
                "a number from 0 to below 1");
  faults.unless(below_one(optimizer.beta2), "--beta2", to_string(optimizer.beta2),
                "a number from 0 to below 1");
  faults.unless(below_one(optimizer.alpha), "--alpha", to_string(optimizer.alpha),
                "a number from 0 to below 1");
  faults.unless(std::isfinite(optimizer.eps) && optimizer.eps > 0.0, "--eps",
                to_string(optimizer.eps), "a number above 0");
  faults.unless(below_one(config.gamma.value_or(0.9)), "gamma",
                to_string(config.gamma.value_or(0.9)), "a number from 0 to below 1");
  faults.unless(config.intra_op_threads >= 1 && config.intra_op_threads <= 1024,
                "--intra-op-threads", to_string(config.intra_op_threads), "1 to 1024");
  return std::move(faults).status();
}

ir::Result<OptimizerKind> optimizer_kind_from(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, kind] : kOptimizers) {
    if (name == known) {
      return kind;
    }
    names.emplace_back(known);
  }
  const std::optional<std::string> nearest = scheduler::nearest_name(name, names);
  return ir::make_error(ir::ErrorKind::Usage, "unknown-optimizer", "--optimizer",
                        "no optimizer '" + std::string(name) +
                            "'; there are: sgd, adam, adamw, rmsprop" +
                            (nearest ? " (did you mean " + *nearest + "?)" : ""));
}

std::string_view optimizer_name(OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)].first;
}

}  // namespace xpipe::executor::nn
