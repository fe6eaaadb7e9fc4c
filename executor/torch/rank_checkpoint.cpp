#include "executor/torch/rank_checkpoint.h"

#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "executor/processes/exchange.h"
#include "executor/torch/checkpoint.h"
#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

using Json = nlohmann::json;
using ir::ErrorKind;

constexpr const char* kNext = "next";

std::string plan_to_json(const CheckpointPlan& plan) {
  Json json = {{"writes", plan.writes},
               {"every_mini_batches", plan.every_mini_batches},
               {"every_epochs", plan.every_epochs},
               {"notes", plan.notes},
               {"path", plan.resume ? plan.resume->path : ""},
               {"manifest", plan.resume ? manifest_to_json(plan.resume->manifest) : ""}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ir::Result<CheckpointPlan> plan_from_json(const std::string& text) {
  CheckpointPlan plan;
  try {
    const Json json = Json::parse(text);
    plan.writes = json.at("writes").get<bool>();
    plan.every_mini_batches = json.at("every_mini_batches").get<std::uint32_t>();
    plan.every_epochs = json.at("every_epochs").get<std::uint32_t>();
    plan.notes = json.at("notes").get<std::vector<std::string>>();
    if (const auto path = json.at("path").get<std::string>(); !path.empty()) {
      auto manifest = manifest_from_json(json.at("manifest").get<std::string>(), path);
      if (!manifest.ok()) {
        return manifest.error();
      }
      plan.resume = ResumePoint{path, std::move(manifest).value()};
    }
  } catch (const Json::exception& exception) {
    return ir::make_error(
        ErrorKind::Runtime, "bad-frame", "",
        std::string("what rank 0 says of checkpoints cannot be read: ") + exception.what());
  }
  return plan;
}

/// A layer as bytes, on the rank that holds it.
using MakeBytes = std::function<ir::Result<std::string>(const Stage& stage, std::size_t layer)>;
/// On rank 0, layer after layer: its place in the model. `comes`: from another rank.
using TakeBytes =
    std::function<ir::Status(std::size_t index, const std::string& bytes, bool comes)>;

ir::Result<std::string> fetch(Peers& peers, std::uint32_t owner) {
  if (ir::Status asked = peers.send(owner, parcel_of(kNext)); !asked.ok()) {
    return asked.error();
  }
  const ir::Result<Parcel> parcel = peers.receive(owner);
  if (!parcel.ok()) {
    return parcel.error();
  }
  return bytes_of(parcel.value());
}

/// Rank 0 asks for one layer after the other, so that no more than one is on its way.
ir::Status gather_layers(Peers& peers,
                         const RankedLayers& layers,
                         const MakeBytes& make,
                         const TakeBytes& take) {
  std::size_t index = 0;
  for (std::size_t k = 0; k < layers.stages.size(); ++k) {
    const std::uint32_t owner = layers.ranks.owners[k];
    for (std::size_t l = 0; l < layers.partition[k]; ++l, ++index) {
      const bool is_mine = owner == peers.rank();
      if (is_mine && owner != 0) {
        if (const ir::Result<Parcel> asked = peers.receive(0); !asked.ok()) {
          return asked.status();
        }
      }
      if (!is_mine && peers.rank() != 0) {
        continue;
      }
      ir::Result<std::string> bytes = is_mine ? make(*layers.stages[k], l) : fetch(peers, owner);
      if (!bytes.ok()) {
        return bytes.status();
      }
      if (ir::Status status = peers.rank() == 0
                                  ? take(index, bytes.value(), !is_mine)
                                  : peers.send(0, parcel_of(std::move(bytes).value()));
          !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

ir::Result<std::string> values_as_bytes(const Stage& stage, std::size_t layer) {
  return tensors_to_bytes(layer_values(stage, layer), stage.layers()[layer].name);
}

/// Ranks that hold a replica of stage `k`, whose first replica is number `first`.
std::set<std::uint32_t> holders(const RankPlan& ranks, std::size_t first, std::size_t count) {
  const auto begin = ranks.replicas.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

/// Rank 0 hands a layer's file out, and goes on when those that need it have it.
ir::Result<std::string> hand_out(Peers& peers,
                                 const std::set<std::uint32_t>& to,
                                 const ResumePoint& from,
                                 std::size_t index) {
  if (peers.rank() != 0) {
    if (!to.contains(peers.rank())) {
      return std::string();
    }
    const ir::Result<Parcel> parcel = peers.receive(0);
    if (!parcel.ok()) {
      return parcel.error();
    }
    if (ir::Status told = peers.send(0, parcel_of(kNext)); !told.ok()) {
      return told.error();
    }
    return bytes_of(parcel.value());
  }
  ir::Result<std::string> bytes = read_layer_file(from.path, from.manifest.layers.at(index));
  if (!bytes.ok()) {
    return bytes;
  }
  const Parcel parcel = parcel_of(bytes.value());
  for (const std::uint32_t rank : to) {
    if (rank != 0) {
      if (ir::Status sent = peers.send(rank, parcel); !sent.ok()) {
        return sent.error();
      }
    }
  }
  for (const std::uint32_t rank : to) {
    if (rank != 0) {
      if (const ir::Result<Parcel> there = peers.receive(rank); !there.ok()) {
        return there.error();
      }
    }
  }
  return bytes;
}

}  // namespace

ir::Result<CheckpointPlan> open_checkpoints_at_zero(Peers& peers,
                                                    const TrainConfig& config,
                                                    const TrainFacts& facts) {
  if (peers.rank() != 0) {
    const ir::Result<std::string> text = broadcast_from(peers, 0, "");
    if (!text.ok()) {
      return text.error();
    }
    return plan_from_json(text.value());
  }
  ir::Result<CheckpointPlan> plan = open_checkpoints(config, facts);
  if (plan.ok()) {
    if (const auto told = broadcast_from(peers, 0, plan_to_json(plan.value())); !told.ok()) {
      return told.error();
    }
  }
  return plan;
}

ir::Result<std::vector<LayerFile>> write_layers_at_zero(Peers& peers,
                                                        const RankedLayers& layers,
                                                        const std::vector<std::string>& names,
                                                        const std::string& begun) {
  std::vector<LayerFile> files;
  const ir::Status status = gather_layers(
      peers, layers,
      [](const Stage& stage, std::size_t layer) {
        return tensors_to_bytes(layer_state(stage, layer), stage.layers()[layer].name);
      },
      [&](std::size_t index, const std::string& bytes, bool /*comes*/) {
        ir::Result<LayerFile> file =
            CheckpointFolder::write_layer(begun, index, names.at(index), bytes);
        if (file.ok()) {
          files.push_back(std::move(file).value());
          return ir::Status();
        }
        return file.status();
      });
  if (!status.ok()) {
    return status.error();
  }
  return files;
}

ir::Status load_layers_from_zero(Peers& peers,
                                 const RankPlan& ranks,
                                 std::vector<Stage>& stages,
                                 const std::vector<std::uint32_t>& replicas,
                                 const std::vector<std::uint32_t>& partition,
                                 const std::vector<std::string>& names,
                                 const ResumePoint& from) {
  std::size_t index = 0;
  std::size_t first = 0;  // replica of the stage
  for (std::size_t k = 0; k < partition.size(); first += replicas[k++]) {
    for (std::size_t l = 0; l < partition[k]; ++l, ++index) {
      if (ir::Status status = check_layer_name(index, names.at(index), from); !status.ok()) {
        return status;
      }
      const ir::Result<std::string> bytes =
          hand_out(peers, holders(ranks, first, replicas[k]), from, index);
      if (!bytes.ok()) {
        return bytes.status();
      }
      for (std::size_t r = first; r < first + replicas[k]; ++r) {
        if (ranks.replicas[r] != peers.rank()) {
          continue;
        }
        if (ir::Status status = load_layer(stages[r], l, index, from, bytes.value());
            !status.ok()) {
          return status;
        }
      }
    }
  }
  for (Stage& stage : stages) {
    stage.optimizer().set_steps(from.manifest.steps);
  }
  return {};
}

ir::Status export_weights_at_zero(Peers& peers,
                                  const RankedLayers& layers,
                                  const std::vector<std::string>& names,
                                  const std::string& path) {
  NamedTensors all;
  const ir::Status gathered = gather_layers(
      peers, layers, values_as_bytes, [&](std::size_t index, const std::string& bytes, bool) {
        const ir::Result<NamedTensors> values = tensors_from_bytes(bytes, names.at(index));
        if (values.ok()) {
          add_exported(names[index], values.value(), all);
        }
        return values.status();
      });
  if (!gathered.ok() || peers.rank() != 0) {
    return gathered;
  }
  const ir::Result<std::string> bytes = tensors_to_bytes(all, path);
  return bytes.ok() ? ir::write_file(path, bytes.value()) : bytes.status();
}

ir::Status gather_model_at_zero(Peers& peers, const RankedLayers& layers, const Model& model) {
  return gather_layers(peers, layers, values_as_bytes,
                       [&](std::size_t index, const std::string& bytes, bool comes) -> ir::Status {
                         if (!comes) {
                           return {};
                         }
                         const Layer& layer = model.layers.at(index);
                         const auto values = tensors_from_bytes(bytes, layer.name);
                         return values.ok() ? set_layer_values(layer, values.value())
                                            : values.status();
                       });
}

}  // namespace xpipe::executor::nn
