#include "app/cluster_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "app/table.h"
#include <fmt/format.h>

#include "ir/cluster_json.h"
#include "ir/decimal.h"
#include "ir/files.h"
#include "scheduler/policy.h"

namespace xpipe::app {

namespace {

std::string number_text(const std::optional<double>& value, const char* absent) {
  return value ? fmt::format("{}", *value) : absent;
}

std::vector<std::string> cells_of(const ir::LinkSpec& spec) {
  return {number_text(spec.bandwidth_bytes_per_s, "infinite"), ir::micros_text(spec.latency),
          std::string(ir::duplex_name(spec.duplex))};
}

std::string via_text(const ir::Cluster& cluster, const std::vector<ir::SharedLinkId>& via) {
  std::vector<std::string_view> names;
  names.reserve(via.size());
  for (const ir::SharedLinkId id : via) {
    names.push_back(cluster.shared_links[ir::index_of(id)].name);
  }
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

std::string devices_table(const ir::Cluster& cluster) {
  Table table({"device", "<name", "speed", "memory_bytes", "memory_bandwidth_bytes_per_s",
               "launch_overhead_us", "overlap_slowdown"});
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const ir::DeviceSpec& device = cluster.devices[d];
    table.add_row({std::to_string(d), device.name.empty() ? "-" : device.name,
                   fmt::format("{}", device.speed),
                   device.memory_bytes ? std::to_string(*device.memory_bytes) : "unlimited",
                   number_text(device.memory_bandwidth_bytes_per_s, "unknown"),
                   ir::micros_text(device.launch_overhead),
                   fmt::format("{}", device.overlap_slowdown)});
  }
  return table.to_string();
}

std::string links_table(const ir::Cluster& cluster) {
  Table table({"<link", "bandwidth_bytes_per_s", "latency_us", "<duplex", "<via"});
  const auto add = [&table](std::string name, const ir::LinkSpec& spec, std::string via) {
    std::vector<std::string> cells = {std::move(name)};
    std::ranges::move(cells_of(spec), std::back_inserter(cells));
    cells.push_back(std::move(via));
    table.add_row(std::move(cells));
  };
  for (const ir::SharedLink& shared : cluster.shared_links) {
    add(shared.name, shared.spec, "-");
  }
  for (const ir::Link& link : cluster.links) {
    add(fmt::format("{} {} {}", ir::index_of(link.from), link.symmetric ? "-" : ">",
                    ir::index_of(link.to)),
        link.spec, via_text(cluster, link.via));
  }
  if (cluster.default_link) {
    add("all others", *cluster.default_link, via_text(cluster, cluster.default_via));
  }
  return table.to_string();
}

}  // namespace

std::string cluster_names() {
  std::vector<std::string_view> names;
  for (const NamedCluster& cluster : named_clusters()) {
    names.push_back(cluster.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

ir::Result<std::string> cluster_text(const std::string& name) {
  const auto named = std::ranges::find(named_clusters(), name, &NamedCluster::name);
  std::error_code ignored;
  const bool is_file = std::filesystem::exists(name, ignored);
  if (named != named_clusters().end()) {
    if (is_file) {
      return ir::make_error(ir::ErrorKind::Usage, "cluster", "--cluster",
                            fmt::format("'{0}' is a file here and a cluster that xpipe knows; "
                                        "write ./{0} for the file, or rename it",
                                        name));
    }
    return std::string(named->text);
  }
  ir::Result<std::string> text = ir::read_file(name);
  if (!text.ok() && !is_file) {
    ir::Error error = text.error();
    error.diagnostics.front().message +=
        "; neither is it a cluster that xpipe knows: " + cluster_names();
    std::vector<std::string> names;
    for (const NamedCluster& cluster : named_clusters()) {
      names.emplace_back(cluster.name);
    }
    if (const auto nearest = scheduler::nearest_name(name, names)) {
      error.diagnostics.front().message += "; did you mean '" + *nearest + "'?";
    }
    return error;
  }
  return text;
}

ir::Result<ir::Cluster> read_cluster(const std::string& name) {
  const ir::Result<std::string> text = cluster_text(name);
  if (!text.ok()) {
    return text.error();
  }
  return ir::cluster_from_json(text.value(), name);
}

std::string describe(const ir::Cluster& cluster) {
  return fmt::format("cluster      {}\nprovenance   {}\nsharing      {}\nall-reduce   {}\n{}{}",
                     cluster.name.empty() ? "-" : cluster.name,
                     cluster.provenance.empty() ? "-" : cluster.provenance,
                     ir::sharing_name(cluster.sharing), ir::all_reduce_name(cluster.all_reduce),
                     devices_table(cluster), links_table(cluster));
}

}  // namespace xpipe::app
