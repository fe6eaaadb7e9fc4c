#include "app/train_report.h"

#include <iostream>

#include "app/exit_status.h"
#include "app/train_output.h"
#include <fmt/format.h>

namespace xpipe::app {

namespace nn = executor::nn;

TrainReport::TrainReport(const nn::TrainConfig& config,
                         const nn::TrainFacts& facts,
                         const ir::Schedule& schedule,
                         bool speaks,
                         bool shows)
    : config_(config),
      facts_(facts),
      schedule_(schedule),
      speaks_(speaks),
      shows_(speaks && shows),
      progress_("training", std::uint64_t{facts.mini_batches} * config.epochs) {}

void TrainReport::begin(const std::string& pinning) const {
  if (speaks_) {
    for (const std::string& note : facts_.notes) {
      print_note(note);
    }
    if (facts_.has_batch_norm && schedule_.micro_batches > 1) {
      print_note(fmt::format(
          "the model has BatchNorm layers: they normalize by the micro-batch, {} samples "
          "of {}, and move their running statistics {} times a mini-batch; "
          "--micro-batches 1 does not",
          config_.batch_size / schedule_.micro_batches, config_.batch_size,
          schedule_.micro_batches));
    }
  }
  if (shows_) {
    std::cout << pinning << (pinning.empty() ? "" : "\n") << head_lines(config_, facts_, schedule_)
              << std::flush;
  }
}

void TrainReport::follow(nn::TrainCallbacks& callbacks) {
  callbacks.on_mini_batch = [this](const nn::MiniBatchRecord& record) {
    const std::uint64_t before = std::uint64_t{facts_.mini_batches} * record.epoch;
    progress_.update(before + record.mini_batch + 1,
                     fmt::format("epoch {} loss {:.4f}", record.epoch, record.loss));
  };
  callbacks.on_epoch = [this](const nn::EpochRecord& epoch, const auto&) {
    progress_.clear();
    if (shows_) {
      std::cout << fmt::format("{:5}  {:.4f}  {:5.2f} %  {:5.2f} %  {:9.1f}\n", epoch.epoch,
                               epoch.train_loss, 100 * epoch.train_accuracy,
                               100 * epoch.test_accuracy, epoch.samples_per_s)
                << std::flush;
    }
  };
}

}  // namespace xpipe::app
