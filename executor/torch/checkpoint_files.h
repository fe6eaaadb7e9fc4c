// The folder of a run's checkpoints, and what a checkpoint says of itself: file names, manifest,
// checksums. Knows no tensors and no torch; what a layer's file holds is checkpoint.h's.
//
//   DIR/mini-batch-000000054/manifest.json       position, settings, the layers' files
//                            layer-000.pt ...    a layer each, whatever the stages were
//   DIR/.new-mini-batch-000000057/               being written; renamed when all of it is on disk
//
// A checkpoint is there whole or not at all: its files are flushed before the folder gets its name.
// Of several processes one has the folder (rank_checkpoint.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "executor/torch/segments.h"
#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor::nn {

/// By name, values as a person would type them.
using Settings = std::map<std::string, std::string>;

struct LayerFile {
  std::string layer;  ///< its name in the model
  std::string file;   ///< beside the manifest
  ir::Bytes bytes = 0;
  std::uint64_t checksum = 0;  ///< fnv1a()

  bool operator==(const LayerFile&) const = default;
};

/// Sums over the mini-batches of an epoch that have been trained so far.
struct EpochSums {
  std::uint64_t samples = 0;
  double loss = 0.0;      ///< means times samples
  double accuracy = 0.0;  ///< likewise
  ir::Nanos train_time = 0;

  bool operator==(const EpochSums&) const = default;
};

struct CheckpointManifest {
  Position position;               ///< where the training goes on
  std::uint64_t mini_batches = 0;  ///< trained over the run
  std::uint64_t steps = 0;         ///< made by every stage's optimizer
  EpochSums epoch;                 ///< of position.epoch
  Settings fixed;                  ///< a run that goes on must have the same
  Settings free;                   ///< may differ; for people
  std::vector<LayerFile> layers;   ///< in the model's order

  bool operator==(const CheckpointManifest&) const = default;
};

/// A checkpoint to go on from.
struct ResumePoint {
  std::string path;
  CheckpointManifest manifest;
};

/// FNV-1a over bytes, 64 bits: no single changed byte keeps it.
[[nodiscard]] std::uint64_t fnv1a(std::string_view bytes);

/// "mini-batch-000000054".
[[nodiscard]] std::string checkpoint_name(std::uint64_t mini_batches);

/// Names of the checkpoints in `folder`, by mini-batches trained, the first first; none when there
/// is no such folder.
[[nodiscard]] std::vector<std::string> checkpoints_in(const std::string& folder);

/// What `--resume` names, as the path of one checkpoint: `path` itself when it holds a manifest,
/// else the last checkpoint in it. Errors: BadInput "no-checkpoint".
[[nodiscard]] ir::Result<std::string> find_checkpoint(const std::string& path);

/// Reads the manifest in the folder `checkpoint`. Errors: BadInput, with the place; a damaged one
/// is told with how to take the checkpoint before it.
[[nodiscard]] ir::Result<CheckpointManifest> read_manifest(const std::string& checkpoint);

/// The bytes of a layer. Errors: BadInput "checkpoint-damaged" when size or checksum are not the
/// manifest's, with how to take the checkpoint before it; BadInput of the file.
[[nodiscard]] ir::Result<std::string> read_layer_file(const std::string& checkpoint,
                                                      const LayerFile& layer);

/// Text and back, as it stands in manifest.json. `file` is for messages.
[[nodiscard]] std::string manifest_to_json(const CheckpointManifest& manifest);
[[nodiscard]] ir::Result<CheckpointManifest> manifest_from_json(std::string_view text,
                                                                std::string_view file);

/// Writes checkpoints into one folder. Not thread-safe; one writer a folder, but for write_layer().
class CheckpointFolder {
 public:
  /// Makes the folder unless it is there, and sweeps what a killed run left half written. `keep`:
  /// checkpoints that stay, at least 1. Errors: Usage when it cannot be written to.
  [[nodiscard]] static ir::Result<CheckpointFolder> open(const std::string& path,
                                                         std::uint32_t keep);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// The checkpoints that are there now and come after `last` (all, when it is empty) belong to
  /// another run, or to a course of this one that was left: the next commit() removes them.
  void replace_after(const std::string& last);

  /// An empty folder for a new checkpoint, with its path. Errors: Runtime "checkpoint-not-written",
  /// as those below; what stood before is untouched then.
  [[nodiscard]] ir::Result<std::string> begin(std::uint64_t mini_batches);

  /// Writes and flushes `bytes`, layer `index` of the model.
  [[nodiscard]] static ir::Result<LayerFile> write_layer(const std::string& begun,
                                                         std::size_t index,
                                                         std::string_view layer,
                                                         std::string_view bytes);

  /// Writes the manifest, gives the folder its name, and takes away all but the last `keep`.
  [[nodiscard]] ir::Status commit(const std::string& begun, const CheckpointManifest& manifest);

  /// Takes away what begin() made.
  static void abandon(const std::string& begun);

 private:
  CheckpointFolder(std::string path, std::uint32_t keep) : path_(std::move(path)), keep_(keep) {}

  std::string path_;
  std::uint32_t keep_;
  std::vector<std::string> others_;  ///< names that the next commit() removes
};

}  // namespace xpipe::executor::nn
