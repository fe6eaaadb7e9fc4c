// What `--cluster` names: a file, or one of the clusters that xpipe knows by name. Those are the
// files of examples/clusters, put into the binary when it is built.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/cluster.h"
#include "ir/status.h"

namespace xpipe::app {

struct NamedCluster {
  std::string_view name;  ///< "dgx-a100"
  std::string_view text;  ///< xpipe.cluster JSON
};

/// By name. Defined in a source that app/CMakeLists.txt writes.
[[nodiscard]] std::span<const NamedCluster> named_clusters();

/// "dgx-1-v100, dgx-2, ...": for messages.
[[nodiscard]] std::string cluster_names();

/// The text of the file `name`, else of the cluster of that name. Errors: BadInput when there is
/// neither, with the names that there are; Usage when there are both, as either could be meant.
[[nodiscard]] ir::Result<std::string> cluster_text(const std::string& name);

/// The cluster itself. Errors: those of cluster_text() and of the file.
[[nodiscard]] ir::Result<ir::Cluster> read_cluster(const std::string& name);

/// Everything that was understood, with units, for people.
[[nodiscard]] std::string describe(const ir::Cluster& cluster);

}  // namespace xpipe::app
