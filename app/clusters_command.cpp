#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "app/cluster_files.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/table.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/cluster_json.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

struct ClustersArguments {
  std::string name;
  bool json = false;
};

ir::Result<ir::Cluster> cluster_of(const NamedCluster& named) {
  return ir::cluster_from_json(named.text, std::string(named.name));
}

ir::Status list_for_people() {
  Table table({"<name", "devices", "links", "<what"});
  for (const NamedCluster& named : named_clusters()) {
    const ir::Result<ir::Cluster> cluster = cluster_of(named);
    if (!cluster.ok()) {
      return cluster.error();
    }
    table.add_row({std::string(named.name), std::to_string(cluster.value().devices.size()),
                   std::to_string(cluster.value().links.size()), cluster.value().name});
  }
  std::cout << table.to_string()
            << "\nxpipe clusters NAME prints one as a file to edit; its provenance says where the "
               "figures are from.\n";
  return {};
}

ir::Status list_as_json() {
  Json document = {{"format", "xpipe.clusters"}, {"version", 1}, {"clusters", Json::array()}};
  for (const NamedCluster& named : named_clusters()) {
    const ir::Result<ir::Cluster> cluster = cluster_of(named);
    if (!cluster.ok()) {
      return cluster.error();
    }
    document["clusters"].push_back({{"name", named.name},
                                    {"what", cluster.value().name},
                                    {"devices", cluster.value().devices.size()},
                                    {"links", cluster.value().links.size()},
                                    {"provenance", cluster.value().provenance}});
  }
  std::cout << document.dump(2) << '\n';
  return {};
}

ir::Status clusters_command(const ClustersArguments& arguments) {
  if (arguments.name.empty()) {
    return arguments.json ? list_as_json() : list_for_people();
  }
  const auto named = std::ranges::find(named_clusters(), arguments.name, &NamedCluster::name);
  if (named == named_clusters().end()) {
    return ir::make_error(ir::ErrorKind::Usage, "cluster", arguments.name,
                          "is no cluster that xpipe knows; expected one of " + cluster_names());
  }
  std::cout << named->text;
  return {};
}

}  // namespace

void add_clusters_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "clusters", "list the clusters that --cluster knows by name, or print one");
  auto arguments = std::make_shared<ClustersArguments>();
  command->add_option("name", arguments->name, "print this one: an xpipe.cluster file to edit")
      ->type_name("NAME");
  command->add_flag("--json", arguments->json, "the list as one JSON document");
  command->footer(
      "Example: xpipe clusters\n"
      "         xpipe clusters dgx-a100 > mine.json");
  command->callback([&context, arguments] {
    if (ir::Status status = clusters_command(*arguments); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
