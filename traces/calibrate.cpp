#include "traces/calibrate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

#include "ir/validate.h"

namespace xpipe::traces {

namespace {

using ir::index_of;
using ir::Nanos;

ir::Error usage(std::string code, std::string where, std::string what) {
  return ir::make_error(ir::ErrorKind::Usage, std::move(code), std::move(where), std::move(what));
}

/// a * b / c, half up, of numbers that are not negative. Requires: c > 0.
std::int64_t scaled(std::int64_t a, std::int64_t b, std::int64_t c) {
  const auto product = static_cast<__int128>(a) * b;
  return static_cast<std::int64_t>((2 * product + c) / (2 * static_cast<__int128>(c)));
}

/// `total` in as many parts as there are weights, in proportion to them; equal ones where all are
/// 0. The parts add up to `total`: each ends where its running sum, rounded down, does.
std::vector<Nanos> shared_out(Nanos total, std::vector<Nanos> weights) {
  Nanos sum = std::accumulate(weights.begin(), weights.end(), Nanos{0});
  if (sum == 0) {
    std::ranges::fill(weights, 1);
    sum = static_cast<Nanos>(weights.size());
  }
  std::vector<Nanos> parts;
  parts.reserve(weights.size());
  Nanos before = 0;
  Nanos ended = 0;
  for (const Nanos weight : weights) {
    before += weight;
    const auto end = static_cast<Nanos>(static_cast<__int128>(total) * before / sum);
    parts.push_back(end - ended);
    ended = end;
  }
  return parts;
}

ir::Status check_run(const ir::Profile& profile, const TimelineFile& run) {
  if (!run.timeline.measured) {
    return usage("not-a-run", "--from-trace",
                 "is a plan, not a run: its times come from a profile; want a trace that xpipe "
                 "train --trace wrote");
  }
  if (ir::Status legal = ir::check_legal(run.schedule); !legal.ok()) {
    return legal;
  }
  std::vector<std::string> layers;
  for (const std::vector<std::string>& of_stage : run.info.layers) {
    layers.insert(layers.end(), of_stage.begin(), of_stage.end());
  }
  if (run.info.layers.size() != run.schedule.stages.size()) {
    return usage("other-layers", "--from-trace",
                 "names no layers, so its stages cannot be told from each other; want a trace that "
                 "xpipe train --trace wrote");
  }
  for (std::size_t l = 0; l < std::max(layers.size(), profile.layers.size()); ++l) {
    const std::string in_run = l < layers.size() ? layers[l] : "none";
    const std::string in_profile = l < profile.layers.size() ? profile.layers[l].name : "none";
    if (in_run != in_profile) {
      std::ostringstream told;
      told << "layer " << l << " of the run is " << in_run << ", that of the profile " << in_profile
           << "; want a run of the same model";
      return usage("other-layers", "--from-trace", told.str());
    }
  }
  for (const ir::Task& task : run.schedule.tasks) {
    if (task.kind() == ir::TaskKind::Recompute) {
      return usage("recomputed", "--from-trace",
                   "the run recomputed forwards, and a profile says nothing of what that takes; "
                   "want a run without --recompute");
    }
  }
  return {};
}

std::vector<StageMedians> medians_of(const TimelineFile& run) {
  struct Times {
    std::vector<Nanos> forward;
    std::vector<Nanos> backward;
    std::vector<Nanos> backward_input;
    std::vector<Nanos> backward_weight;
    std::vector<Nanos> step;
  };

  std::vector<Times> times(run.schedule.stages.size());
  for (const ir::Span& span : run.timeline.spans) {
    const ir::Task& task = run.schedule.task(span.task);
    Times& of_stage = times[index_of(task.stage)];
    const Nanos time = span.end - span.start;
    switch (task.kind()) {
      case ir::TaskKind::Forward:
        of_stage.forward.push_back(time);
        break;
      case ir::TaskKind::Backward:
        of_stage.backward.push_back(time);
        break;
      case ir::TaskKind::BackwardInput:
        of_stage.backward_input.push_back(time);
        break;
      case ir::TaskKind::BackwardWeight:
        of_stage.backward_weight.push_back(time);
        break;
      case ir::TaskKind::Step:
        of_stage.step.push_back(time);
        break;
      case ir::TaskKind::Recompute:
      case ir::TaskKind::Predict:
      case ir::TaskKind::Stash:
      case ir::TaskKind::Release:
      case ir::TaskKind::Send:
      case ir::TaskKind::Receive:
      case ir::TaskKind::AllReduce:
      case ir::TaskKind::SumTied:
      case ir::TaskKind::ClipNorm:
        break;
    }
  }
  const auto of = [](const std::vector<Nanos>& some) {
    return some.empty() ? std::nullopt : std::optional(median(some));
  };
  std::vector<StageMedians> medians;
  medians.reserve(times.size());
  for (const Times& t : times) {
    medians.push_back(
        {of(t.forward), of(t.backward), of(t.backward_input), of(t.backward_weight), of(t.step)});
  }
  return medians;
}

/// The layers of one stage, first to last.
class StageLayers {
 public:
  explicit StageLayers(std::span<ir::LayerProfile> layers) : layers_(layers) {}

  /// Gives each layer its part of `total`, in proportion to what it has.
  void share(Nanos total, Nanos ir::LayerProfile::* time) {
    std::vector<Nanos> weights;
    for (const ir::LayerProfile& layer : layers_) {
      weights.push_back(layer.*time);
    }
    const std::vector<Nanos> parts = shared_out(total, std::move(weights));
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layers_[l].*time = parts[l];
    }
  }

  /// A backward's, both parts in proportion to what each layer has of them.
  void share_backward(Nanos total) {
    std::vector<Nanos> weights;
    for (const ir::LayerProfile& layer : layers_) {
      weights.push_back(layer.backward_input);
      weights.push_back(layer.backward_weight);
    }
    const std::vector<Nanos> parts = shared_out(total, std::move(weights));
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layers_[l].backward_input = parts[2 * l];
      layers_[l].backward_weight = parts[2 * l + 1];
    }
  }

  /// A step's, over the layers with parameters: by their updates where all have one, else by bytes.
  void share_step(Nanos total) {
    bool all_timed = true;
    for (const ir::LayerProfile& layer : layers_) {
      all_timed = all_timed && (layer.parameter_bytes == 0 || layer.update.has_value());
    }
    std::vector<std::size_t> places;
    std::vector<Nanos> weights;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      if (layers_[l].parameter_bytes > 0) {
        places.push_back(l);
        weights.push_back(all_timed ? *layers_[l].update : layers_[l].parameter_bytes);
      }
    }
    if (places.empty()) {
      return;
    }
    const std::vector<Nanos> parts = shared_out(total, std::move(weights));
    for (std::size_t i = 0; i < places.size(); ++i) {
      layers_[places[i]].update = parts[i];
    }
  }

 private:
  std::span<ir::LayerProfile> layers_;
};

/// Messages of one pair of devices: from the start of each send to the end of its receive.
ir::Cluster cluster_of(const TimelineFile& run) {
  ir::Cluster cluster;
  cluster.name = "calibrated";
  cluster.provenance = "latencies: medians of a run, " + run.info.title;
  for (std::uint32_t d = 0; d < run.schedule.devices; ++d) {
    ir::DeviceSpec device;
    device.name = "device " + std::to_string(d);
    cluster.devices.push_back(std::move(device));
  }
  std::map<std::pair<ir::DeviceId, ir::DeviceId>, std::vector<Nanos>> times;
  for (const ir::Edge& edge : run.schedule.edges) {
    const ir::Task& send = run.schedule.task(edge.from);
    const ir::Task& receive = run.schedule.task(edge.to);
    if (send.kind() == ir::TaskKind::Send && receive.kind() == ir::TaskKind::Receive) {
      times[{run.schedule.lane(send.lane).device, run.schedule.lane(receive.lane).device}]
          .push_back(run.timeline.spans[index_of(edge.to)].end -
                     run.timeline.spans[index_of(edge.from)].start);
    }
  }
  for (auto& [pair, of_pair] : times) {
    ir::LinkSpec spec;
    spec.latency = median(std::move(of_pair));
    cluster.links.push_back(
        {.from = pair.first, .to = pair.second, .symmetric = false, .spec = spec});
  }
  return cluster;
}

}  // namespace

Nanos median(std::vector<Nanos> times) {
  std::ranges::sort(times);
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle] + 1) / 2;
}

ir::Result<Calibration> calibrate(const ir::Profile& profile,
                                  const TimelineFile& run,
                                  std::uint32_t batch_size) {
  if (ir::Status fits = check_run(profile, run); !fits.ok()) {
    return fits.error();
  }
  Calibration calibration{profile, cluster_of(run), medians_of(run)};
  ir::Profile& calibrated = calibration.profile;
  calibrated.samples = batch_size;
  calibrated.provenance = "calibrated by " + run.info.title + "; before: " + profile.provenance;
  const auto per_batch = [&](std::int64_t of_profile) {
    return scaled(of_profile, batch_size, profile.samples);
  };
  calibrated.data_loading = per_batch(profile.data_loading);
  for (ir::LayerProfile& layer : calibrated.layers) {
    for (std::int64_t ir::LayerProfile::* const number :
         {&ir::LayerProfile::forward, &ir::LayerProfile::backward_input,
          &ir::LayerProfile::backward_weight, &ir::LayerProfile::output_bytes,
          &ir::LayerProfile::saved_bytes, &ir::LayerProfile::saved_for_weight_bytes,
          &ir::LayerProfile::workspace_bytes}) {
      layer.*number = per_batch(layer.*number);
    }
  }
  // A micro-batch costs a T-th of the profile's times, to the nanosecond.
  const auto parts = static_cast<Nanos>(run.schedule.micro_batches);
  std::size_t first = 0;
  for (std::size_t k = 0; k < calibration.medians.size(); ++k) {
    const std::size_t count = run.info.layers[k].size();
    StageLayers layers(std::span(calibrated.layers).subspan(first, count));
    first += count;
    const StageMedians& medians = calibration.medians[k];
    if (medians.forward) {
      layers.share(*medians.forward * parts, &ir::LayerProfile::forward);
    }
    if (medians.backward) {
      layers.share_backward(*medians.backward * parts);
    }
    if (medians.backward_input) {
      layers.share(*medians.backward_input * parts, &ir::LayerProfile::backward_input);
    }
    if (medians.backward_weight) {
      layers.share(*medians.backward_weight * parts, &ir::LayerProfile::backward_weight);
    }
    if (medians.step) {
      layers.share_step(*medians.step);
    }
  }
  return calibration;
}

}  // namespace xpipe::traces
