#include "app/profile_calibration.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <optional>
#include <utility>

#include "app/arguments.h"
#include "app/cluster_files.h"
#include "app/table.h"
#include "app/workload.h"
#include <fmt/format.h>

#include "ir/cluster_json.h"
#include "ir/files.h"
#include "ir/profile_json.h"
#include "traces/calibrate.h"
#include "traces/timeline_file.h"

namespace xpipe::app {

namespace {

ir::Result<std::uint32_t> batch_size_of(const traces::TimelineFile& run, const std::string& file) {
  const auto fact = std::ranges::find(run.info.facts, std::string("batch_size"),
                                      &std::pair<std::string, std::string>::first);
  std::uint32_t samples = 0;
  if (fact != run.info.facts.end()) {
    const std::string& text = fact->second;
    std::from_chars(text.data(), text.data() + text.size(), samples);
  }
  if (samples == 0) {
    return ir::make_error(ir::ErrorKind::BadInput, "no-batch-size", file,
                          "does not say how many samples a mini-batch has; want a trace that xpipe "
                          "train --trace wrote");
  }
  return samples;
}

std::string micros(const std::optional<ir::Nanos>& time) {
  return time ? fmt::format("{:.3f}", static_cast<double>(*time) / 1e3) : "";
}

void print_people(const traces::Calibration& calibration, const traces::TimelineFile& run) {
  std::cout << fmt::format("{}\n{}\n\n", calibration.profile.name, calibration.profile.provenance);
  const bool is_split = std::ranges::any_of(
      calibration.medians,
      [](const traces::StageMedians& medians) { return medians.backward_input.has_value(); });
  std::vector<std::string> head{"stage", "layers", "forward us"};
  if (is_split) {
    head.insert(head.end(), {"backward-input us", "backward-weight us"});
  } else {
    head.emplace_back("backward us");
  }
  head.emplace_back("step us");
  Table table(head);
  for (std::size_t k = 0; k < calibration.medians.size(); ++k) {
    const traces::StageMedians& medians = calibration.medians[k];
    std::vector<std::string> row{std::to_string(k), std::to_string(run.info.layers[k].size()),
                                 micros(medians.forward)};
    if (is_split) {
      row.insert(row.end(), {micros(medians.backward_input), micros(medians.backward_weight)});
    } else {
      row.push_back(micros(medians.backward));
    }
    row.push_back(micros(medians.step));
    table.add_row(row);
  }
  std::cout << table.to_string() << '\n';
  for (const ir::Link& link : calibration.cluster.links) {
    std::cout << fmt::format("device {} to {}: a message takes {} us\n", index_of(link.from),
                             index_of(link.to), micros(link.spec.latency));
  }
}

}  // namespace

ir::Status calibrate_profile(const CalibrationArguments& arguments) {
  if (arguments.profile.empty()) {
    return app::usage("--from-trace",
                      "needs --profile FILE, whose layers share out the times of the stages");
  }
  for (const std::string& file : {arguments.output, arguments.cluster_output}) {
    if (!file.empty()) {
      if (ir::Status writable = ir::check_writable(file); !writable.ok()) {
        return writable;
      }
    }
  }
  if (!arguments.cluster.empty() && arguments.cluster_output.empty()) {
    return app::usage("--cluster", "has no effect without --cluster-output");
  }
  if (!arguments.output.empty() && arguments.output == arguments.cluster_output) {
    return app::usage("--cluster-output",
                      fmt::format("and --output both name {}", arguments.output));
  }
  const ir::Result<ir::Profile> profile = read_profile(arguments.profile, std::nullopt);
  if (!profile.ok()) {
    return profile.status();
  }
  const ir::Result<std::string> content = ir::read_file(arguments.from_trace);
  if (!content.ok()) {
    return content.status();
  }
  const auto run = traces::read_timeline(content.value(), arguments.from_trace);
  if (!run.ok()) {
    return run.status();
  }
  const ir::Result<std::uint32_t> batch_size = batch_size_of(run.value(), arguments.from_trace);
  if (!batch_size.ok()) {
    return batch_size.status();
  }
  const auto calibration = traces::calibrate(profile.value(), run.value(), batch_size.value());
  if (!calibration.ok()) {
    return calibration.status();
  }
  ir::Cluster cluster = calibration.value().cluster;
  if (!arguments.cluster.empty()) {
    ir::Result<ir::Cluster> devices = read_cluster(arguments.cluster);
    if (!devices.ok()) {
      return devices.status();
    }
    if (devices.value().devices.size() < cluster.devices.size()) {
      return app::usage(
          "--cluster", fmt::format("has {} devices, the run had {}", devices.value().devices.size(),
                                   cluster.devices.size()));
    }
    cluster.devices = std::move(devices.value().devices);
    cluster.default_link = devices.value().default_link;
  }
  const std::string json = ir::profile_to_json(calibration.value().profile);
  if (!arguments.output.empty()) {
    if (ir::Status written = ir::write_file(arguments.output, json); !written.ok()) {
      return written;
    }
  }
  if (!arguments.cluster_output.empty()) {
    if (ir::Status written = ir::write_file(arguments.cluster_output, ir::cluster_to_json(cluster));
        !written.ok()) {
      return written;
    }
  }
  if (arguments.json) {
    std::cout << json;
  } else {
    print_people(calibration.value(), run.value());
  }
  return {};
}

}  // namespace xpipe::app
