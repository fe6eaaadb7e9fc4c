#include "executor/torch/rank_records.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "executor/processes/clocks.h"
#include "executor/processes/exchange.h"

namespace xpipe::executor::nn {

namespace {

using Json = nlohmann::json;
using std::chrono::steady_clock;

ir::Error unreadable(const Json::exception& exception) {
  return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "",
                        std::string("what another rank holds cannot be read: ") + exception.what());
}

/// Every bit of it, numbers that are none included.
std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

double from_bits(const Json& json) {
  return std::bit_cast<double>(json.get<std::uint64_t>());
}

Json to_json(const std::vector<std::optional<double>>& values) {
  Json json = Json::array();
  for (const std::optional<double>& value : values) {
    json.push_back(value ? Json(bits(*value)) : Json());
  }
  return json;
}

/// Takes the values that `json` has.
void fill(std::vector<std::optional<double>>& values, const Json& json) {
  values.resize(std::max(values.size(), json.size()));
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_null()) {
      values[i] = from_bits(json[i]);
    }
  }
}

Json to_json(const std::vector<MiniBatchRecord>& records) {
  Json json = Json::array();
  for (const MiniBatchRecord& record : records) {
    json.push_back({record.samples, bits(record.loss), bits(record.accuracy),
                    to_json(record.prediction_error), to_json(record.unpredicted_error)});
  }
  return json;
}

void take(std::vector<MiniBatchRecord>& records, const Json& json) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& other = json.at(i);
    if (records[i].samples == 0) {  // those that several ranks had a part of are whole here
      records[i].samples = other.at(0).get<std::uint32_t>();
      records[i].loss = from_bits(other.at(1));
      records[i].accuracy = from_bits(other.at(2));
    }
    fill(records[i].prediction_error, other.at(3));
    fill(records[i].unpredicted_error, other.at(4));
  }
}

}  // namespace

RankPlan rank_plan(const Peers* peers, const ir::Schedule& schedule) {
  RankPlan plan;
  plan.owners.reserve(schedule.stages.size());
  for (const ir::StageInfo& stage : schedule.stages) {
    for (const ir::DeviceId device : stage.devices) {
      plan.replicas.push_back(peers == nullptr ? 0 : peers->rank_of(device));
    }
    plan.owners.push_back(plan.replicas[plan.replicas.size() - stage.devices.size()]);
  }
  for (std::size_t r = 0; r < schedule.stages.back().devices.size(); ++r) {
    plan.losses_are_apart |= plan.replicas[plan.replicas.size() - 1 - r] != plan.owners.back();
  }
  return plan;
}

std::vector<bool> replicas_elsewhere(const Peers* peers, const RankPlan& plan) {
  std::vector<bool> elsewhere;
  if (peers != nullptr) {
    elsewhere.reserve(plan.replicas.size());
    for (const std::uint32_t rank : plan.replicas) {
      elsewhere.push_back(rank != peers->rank());
    }
  }
  return elsewhere;
}

std::function<bool(ir::DeviceId)> remote_devices(const Peers* peers) {
  if (peers == nullptr) {
    return {};
  }
  return [peers](ir::DeviceId device) { return !peers->is_local(device); };
}

ir::Status merge_timeline(Peers& peers,
                          const ir::Schedule& schedule,
                          ir::Timeline& timeline,
                          steady_clock::time_point& began) {
  const auto offsets = measure_clocks(peers);
  if (!offsets.ok()) {
    return offsets.error();
  }
  const RankSpans mine{.origin = std::chrono::nanoseconds(began.time_since_epoch()).count(),
                       .spans = timeline.spans};
  const auto gathered = gather_at_zero(peers, to_bytes(mine));
  if (!gathered.ok()) {
    return gathered.error();
  }
  if (peers.rank() != 0) {
    return {};
  }
  std::vector<RankSpans> by_rank;
  by_rank.reserve(gathered.value().size());
  for (const std::string& bytes : gathered.value()) {
    ir::Result<RankSpans> spans = spans_from(bytes);
    if (!spans.ok()) {
      return spans.error();
    }
    by_rank.push_back(std::move(spans).value());
  }
  MergedTimeline merged = merge_timelines(schedule, by_rank, offsets.value());
  timeline = std::move(merged.timeline);
  began = steady_clock::time_point(std::chrono::nanoseconds(merged.began));
  return {};
}

ir::Result<std::vector<LossPart>> gather_losses(Peers& peers, const std::vector<LossPart>& mine) {
  Json json = Json::array();
  for (const LossPart& part : mine) {
    json.push_back({part.micro_batch, part.samples, bits(part.mean), bits(part.correct)});
  }
  const auto gathered = gather_at_zero(peers, json.dump());
  if (!gathered.ok()) {
    return gathered.error();
  }
  std::vector<LossPart> others;
  try {
    for (std::uint32_t rank = 1; rank < gathered.value().size(); ++rank) {
      for (const Json& part : Json::parse(gathered.value()[rank])) {
        others.push_back({.micro_batch = part.at(0).get<std::uint32_t>(),
                          .samples = part.at(1).get<std::uint32_t>(),
                          .mean = from_bits(part.at(2)),
                          .correct = from_bits(part.at(3))});
      }
    }
  } catch (const Json::exception& exception) {
    return unreadable(exception);
  }
  return others;
}

ir::Status merge_records(Peers& peers, std::vector<MiniBatchRecord>& records) {
  const auto gathered = gather_at_zero(peers, to_json(records).dump());
  if (!gathered.ok()) {
    return gathered.error();
  }
  try {
    for (std::uint32_t rank = 1; rank < gathered.value().size(); ++rank) {
      take(records, Json::parse(gathered.value()[rank]));
    }
  } catch (const Json::exception& exception) {
    return unreadable(exception);
  }
  return {};
}

ir::Status merge_memory(Peers& peers,
                        const StageOwners& owners,
                        std::vector<StageMemory>& memory,
                        ir::Bytes& probe_bytes) {
  Json mine = {{"probes", probe_bytes}, {"stages", Json::array()}};
  for (const StageMemory& stage : memory) {
    mine["stages"].push_back(
        {stage.weights, stage.slots, stage.optimizer, stage.weight_storages, stage.parameters});
  }
  const auto gathered = gather_at_zero(peers, mine.dump());
  if (!gathered.ok()) {
    return gathered.error();
  }
  try {
    for (std::uint32_t rank = 1; rank < gathered.value().size(); ++rank) {
      const Json other = Json::parse(gathered.value()[rank]);
      probe_bytes += other.at("probes").get<ir::Bytes>();
      for (std::size_t k = 0; k < memory.size(); ++k) {
        if (owners[k] == rank) {
          const Json& stage = other.at("stages").at(k);
          memory[k] = {.weights = stage.at(0).get<ir::Bytes>(),
                       .slots = stage.at(1).get<ir::Bytes>(),
                       .optimizer = stage.at(2).get<ir::Bytes>(),
                       .weight_storages = stage.at(3).get<std::size_t>(),
                       .parameters = stage.at(4).get<std::size_t>()};
        }
      }
    }
  } catch (const Json::exception& exception) {
    return unreadable(exception);
  }
  return {};
}

}  // namespace xpipe::executor::nn
