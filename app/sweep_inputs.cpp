#include "app/sweep_inputs.h"

#include <algorithm>

#include "app/cluster_files.h"
#include "app/set_up_parser.h"
#include <zlib.h>

#include "ir/files.h"

namespace xpipe::app {

namespace {

/// All values of an option, or one that says it is not given.
std::vector<std::string> values_of(const SweepAxes& axes, const std::string& option) {
  const SweepAxis* axis = axes.find(option);
  return axis == nullptr ? std::vector<std::string>{""} : axis->values;
}

void append(ir::Error& error, const ir::Error& more) {
  error.kind = more.kind == ir::ErrorKind::BadInput ? more.kind : error.kind;
  error.diagnostics.insert(error.diagnostics.end(), more.diagnostics.begin(),
                           more.diagnostics.end());
}

}  // namespace

ir::Result<SweepInputs> SweepInputs::read(const SweepAxes& axes,
                                          const scheduler::PolicyRegistry& registry) {
  SweepInputs inputs;
  ir::Error error{ir::ErrorKind::Usage, {}};
  const SweepAxis* policies = axes.find("--policy");
  if (policies == nullptr) {
    return ir::make_error(ir::ErrorKind::Usage, "options", "--policy",
                          "is missing: name one or several, joined by commas (xpipe policies "
                          "lists them)");
  }
  for (const std::string& name : policies->values) {
    const auto policy = registry.find(name);
    if (policy.ok()) {
      inputs.policies_.push_back(policy.value());
    } else {
      append(error, policy.error());
    }
  }
  SetUpParser parser;
  const auto read_files = [&](const std::vector<std::string>& words) {
    const ir::Result<SimulateArguments> arguments = parser.parse(words);
    XPIPE_CHECK(arguments.ok()) << "the values of the axes are checked";
    const WorkloadArguments& workload = arguments.value().workload;
    ir::Result<WorkloadFiles> files = read_workload_files(workload);
    if (!files.ok()) {
      append(error, files.error());
      return;
    }
    if (files.value().profile.has_value()) {
      inputs.profiles_.insert_or_assign({workload.profile, workload.samples},
                                        std::move(*files.value().profile));
    } else {
      inputs.clusters_.insert_or_assign(workload.cluster, std::move(*files.value().cluster));
    }
  };
  if (const SweepAxis* profiles = axes.find("--profile")) {
    for (const std::string& profile : profiles->values) {
      for (const std::string& samples : values_of(axes, "--samples")) {
        std::vector<std::string> words = {"--profile", profile};
        if (!samples.empty()) {
          words.insert(words.end(), {"--samples", samples});
        }
        read_files(words);
      }
    }
  }
  if (const SweepAxis* clusters = axes.find("--cluster")) {
    for (const std::string& cluster : clusters->values) {
      read_files({"--cluster", cluster});
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  for (const char* option : {"--profile", "--cluster"}) {
    const SweepAxis* axis = axes.find(option);
    for (std::size_t i = 0; axis != nullptr && i < axis->values.size(); ++i) {
      const ir::Result<std::string> content = std::string_view(option) == "--cluster"
                                                  ? cluster_text(axis->values[i])
                                                  : ir::read_file(axis->values[i]);
      if (!content.ok()) {
        return content.error();
      }
      const auto* data = reinterpret_cast<const unsigned char*>(content.value().data());
      inputs.files_.push_back(
          {axis->values[i], content.value().size(),
           static_cast<std::uint32_t>(crc32_z(0, data, content.value().size()))});
    }
  }
  return inputs;
}

WorkloadFiles SweepInputs::files_of(const WorkloadArguments& arguments) const {
  WorkloadFiles files;
  if (!arguments.profile.empty()) {
    files.profile = profiles_.at({arguments.profile, arguments.samples});
  }
  if (!arguments.cluster.empty()) {
    files.cluster = clusters_.at(arguments.cluster);
  }
  return files;
}

}  // namespace xpipe::app
