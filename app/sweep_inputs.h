// What a sweep reads once, before its first set-up: policies, profiles, clusters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/simulate_arguments.h"
#include "app/sweep_axes.h"
#include "app/workload.h"

#include "ir/cluster.h"
#include "ir/profile.h"
#include "ir/status.h"
#include "scheduler/policy.h"

namespace xpipe::app {

class SweepInputs {
 public:
  /// Errors: Usage for every policy that there is not; BadInput for every file that cannot be read.
  [[nodiscard]] static ir::Result<SweepInputs> read(const SweepAxes& axes,
                                                    const scheduler::PolicyRegistry& registry);

  /// In the order of --policy.
  [[nodiscard]] const std::vector<const scheduler::Policy*>& policies() const { return policies_; }

  /// The files that a set-up names. Requires: it is one of the sweep's.
  [[nodiscard]] WorkloadFiles files_of(const WorkloadArguments& arguments) const;

  /// A file's name with its size and checksum: a sweep goes on only with the same inputs.
  struct FileFacts {
    std::string path;
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };

  /// In the order of the axes.
  [[nodiscard]] const std::vector<FileFacts>& files() const { return files_; }

 private:
  std::vector<const scheduler::Policy*> policies_;
  std::map<std::pair<std::string, std::optional<std::uint32_t>>, ir::Profile> profiles_;
  std::map<std::string, ir::Cluster> clusters_;
  std::vector<FileFacts> files_;
};

}  // namespace xpipe::app
