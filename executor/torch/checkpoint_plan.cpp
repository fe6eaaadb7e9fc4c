#include "executor/torch/checkpoint_plan.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "ir/decimal.h"
#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;
using ir::ErrorKind;

std::string listed(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

constexpr const char* kEvery = "checkpoint_every";

/// As asked for, else as the run that is resumed had it.
void set_interval(const CheckpointConfig& asked, CheckpointPlan& plan) {
  CheckpointConfig interval = asked;
  if (interval.every_mini_batches == 0 && interval.every_epochs == 0 && plan.resume) {
    const Settings& then = plan.resume->manifest.free;
    const auto found = then.find(kEvery);
    // A text that cannot be read leaves the default.
    static_cast<void>(found != then.end() && parse_checkpoint_every(found->second, interval));
  }
  plan.every_mini_batches = interval.every_mini_batches;
  plan.every_epochs = std::max(interval.every_epochs, 1U);
}

/// The folder of checkpoints that `resume` names or lies in.
std::string folder_of(const std::string& resume, const std::string& checkpoint) {
  return resume == checkpoint ? fs::path(checkpoint).lexically_normal().parent_path().string()
                              : resume;
}

/// Differing values that no wish can make fit: the tensors, or the place in an epoch.
bool must_be_equal(const std::string& name, const Position& position) {
  static const std::set<std::string> kTensors{"data", "model", "optimizer"};
  static const std::set<std::string> kPlaces{"batch_size", "last_batch", "train_samples"};
  return kTensors.contains(name) || name.starts_with("model.") ||
         (position.mini_batch > 0 && kPlaces.contains(name));
}

ir::Status compare_settings(const ResumePoint& resume,
                            const Settings& here,
                            bool force,
                            std::vector<std::string>& notes) {
  ir::Error error{ErrorKind::BadInput, {}};
  Settings names = resume.manifest.fixed;
  names.insert(here.begin(), here.end());
  const auto shown = [](const Settings& settings, const std::string& name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string("not set") : found->second;
  };
  for (const auto& [name, value] : names) {
    const std::string then = shown(resume.manifest.fixed, name);
    const std::string now = shown(here, name);
    if (then == now) {
      continue;
    }
    const std::string text = name + " is " + then + " in the checkpoint, " + now + " in this run";
    const bool fatal = must_be_equal(name, resume.manifest.position);
    if (force && !fatal) {
      notes.push_back(text + "; going on with " + now + ", as --force says");
    } else {
      error.diagnostics.push_back(
          {"other-settings", resume.path,
           text + (fatal ? "; give the same" : "; give the same, or go on regardless by --force")});
    }
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

ir::Result<ResumePoint> find_resume_point(const std::string& path) {
  ir::Result<std::string> checkpoint = find_checkpoint(path);
  if (!checkpoint.ok()) {
    return checkpoint.error();
  }
  ir::Result<CheckpointManifest> manifest = read_manifest(checkpoint.value());
  if (!manifest.ok()) {
    return manifest.error();
  }
  // Damage shows before anything is trained or printed.
  for (const LayerFile& layer : manifest.value().layers) {
    const ir::Result<std::string> bytes = read_layer_file(checkpoint.value(), layer);
    if (!bytes.ok()) {
      return bytes.error();
    }
  }
  return ResumePoint{std::move(checkpoint).value(), std::move(manifest).value()};
}

}  // namespace

Settings fixed_settings(const TrainConfig& config, const TrainFacts& facts) {
  const OptimizerConfig& optimizer = config.optimizer;
  Settings settings = {
      {"model", config.model},
      {"data", facts.data_kind},
      {"train_samples", std::to_string(facts.train_samples)},
      {"batch_size", std::to_string(config.batch_size)},
      {"last_batch", config.recipe.last_batch == LastBatch::Keep ? "keep" : "drop"},
      {"loss", config.recipe.loss == LossKind::CrossEntropy ? "cross-entropy" : "mse"},
      {"loss_reduction", config.recipe.loss_reduction == LossReduction::Mean ? "mean" : "sum"},
      {"seed", std::to_string(config.seed)},
      {"optimizer", std::string(optimizer_name(optimizer.kind))},
      {"lr", ir::number_text(optimizer.learning_rate)},
      {"momentum", ir::number_text(optimizer.momentum)},
      {"weight_decay", ir::number_text(optimizer.weight_decay)},
      {"beta1", ir::number_text(optimizer.beta1)},
      {"beta2", ir::number_text(optimizer.beta2)},
      {"alpha", ir::number_text(optimizer.alpha)},
      {"eps", ir::number_text(optimizer.eps)},
  };
  const DataOptions& data = config.data_options;
  settings["augment_crop"] = data.augmentations.crop ? "yes" : "no";
  settings["augment_flip"] = data.augmentations.flip ? "yes" : "no";
  settings["image_size"] = std::to_string(data.image_size);
  settings["tokens"] = data.tokens == TextTokens::Bytes ? "bytes" : "characters";
  for (const auto& [name, value] : config.model_options) {
    settings["model." + name] = value;
  }
  const LearningRateSchedule& schedule = optimizer.schedule;
  settings["lr_schedule"] = learning_rate_shape_name(schedule.shape);
  settings["warm_up"] = std::to_string(schedule.warm_up);
  if (schedule.shape == LearningRateShape::Step) {
    settings["lr_step_every"] = std::to_string(schedule.step_every);
    settings["lr_gamma"] = ir::number_text(schedule.gamma);
  }
  if (schedule.shape == LearningRateShape::Cosine) {
    settings["lr_total_steps"] = std::to_string(schedule.total);
  }
  return settings;
}

Settings free_settings(const TrainConfig& config,
                       const TrainFacts& facts,
                       const CheckpointPlan& plan,
                       const ir::Schedule& schedule) {
  Settings settings = {
      {"policy", schedule.policy},
      {"stages", std::to_string(facts.stages)},
      {"partition", listed(facts.partition)},
      {"micro_batches", std::to_string(schedule.micro_batches)},
      {"epochs", std::to_string(config.epochs)},
      {"intra_op_threads", std::to_string(config.intra_op_threads)},
      {"dtype", std::string(compute_type_name(config.compute.dtype))},
      {kEvery, plan.every_mini_batches > 0 ? std::to_string(plan.every_mini_batches)
                                           : std::to_string(plan.every_epochs) + "epochs"},
  };
  for (const auto& [name, value] : schedule.options) {
    settings["policy." + name] = value;
  }
  return settings;
}

ir::Result<CheckpointPlan> open_checkpoints(const TrainConfig& config, const TrainFacts& facts) {
  const CheckpointConfig& asked = config.checkpoint;
  CheckpointPlan plan;
  std::string resumed_folder;
  if (!asked.resume.empty()) {
    ir::Result<ResumePoint> resume = find_resume_point(asked.resume);
    if (!resume.ok()) {
      return resume.error();
    }
    const ResumePoint& point = resume.value();
    if (ir::Status status =
            compare_settings(point, fixed_settings(config, facts), asked.force, plan.notes);
        !status.ok()) {
      return status.error();
    }
    const Position& at = point.manifest.position;
    if (at.epoch >= config.epochs) {
      return ir::make_error(ErrorKind::Usage, "nothing-to-train", "--epochs",
                            std::to_string(config.epochs) + " have been trained already in " +
                                point.path + "; raise it to go on");
    }
    if (at.mini_batch >= facts.mini_batches) {
      return ir::make_error(ErrorKind::BadInput, "other-settings", point.path,
                            "goes on at mini-batch " + std::to_string(at.mini_batch) +
                                " of an epoch, and an epoch of this run has " +
                                std::to_string(facts.mini_batches));
    }
    resumed_folder = folder_of(asked.resume, point.path);
    plan.resume = std::move(resume).value();
  }
  const bool writes = !asked.folder.empty() || !resumed_folder.empty();
  if (writes) {
    set_interval(asked, plan);
  }
  const std::string folder = asked.folder.empty() ? resumed_folder : asked.folder;
  if (writes) {
    const std::vector<std::string> there = checkpoints_in(folder);
    const bool ours = !resumed_folder.empty() && same_folder(folder, resumed_folder);
    if (!there.empty() && !ours && !asked.force) {
      return ir::make_error(ErrorKind::Usage, "other-run", folder,
                            "holds a run's checkpoints, the last " + there.back() +
                                "; go on from there with --resume " + folder +
                                ", name another folder, or let this run replace them with --force");
    }
    ir::Result<CheckpointFolder> opened = CheckpointFolder::open(folder, asked.keep);
    if (!opened.ok()) {
      return opened.error();
    }
    opened.value().replace_after(
        ours ? fs::path(plan.resume->path).lexically_normal().filename().string() : "");
    plan.folder = std::move(opened).value();
    plan.writes = true;
  }
  if (!asked.export_file.empty()) {
    if (ir::Status status = ir::check_writable(asked.export_file); !status.ok()) {
      return status.error();
    }
  }
  return plan;
}

bool parse_checkpoint_every(std::string_view text, CheckpointConfig& config) {
  bool epochs = false;
  for (const std::string_view suffix : {"epochs", "epoch"}) {
    if (!epochs && text.ends_with(suffix)) {
      text.remove_suffix(suffix.size());
      epochs = true;
    }
  }
  std::uint32_t number = 0;
  const char* const last = text.data() + text.size();
  const auto read = std::from_chars(text.data(), last, number);
  if (read.ec != std::errc() || read.ptr != last || number == 0 || text.front() == '0') {
    return false;
  }
  config.every_mini_batches = epochs ? 0 : number;
  config.every_epochs = epochs ? number : 0;
  return true;
}

bool checkpoint_due(const CheckpointPlan& plan,
                    const Position& position,
                    std::uint64_t mini_batches,
                    std::uint32_t epochs) {
  if (position.epoch >= epochs) {
    return true;
  }
  if (plan.every_mini_batches > 0) {
    return mini_batches % plan.every_mini_batches == 0;
  }
  return position.mini_batch == 0 && position.epoch % plan.every_epochs == 0;
}

}  // namespace xpipe::executor::nn
