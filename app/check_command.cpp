#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/cluster_json.h"
#include "ir/file_kind.h"
#include "ir/files.h"
#include "ir/pipedream_graph.h"
#include "ir/profile_json.h"
#include "ir/schedule_json.h"
#include "ir/strict_json.h"
#include "ir/text.h"
#include "ir/validate.h"
#include "traces/timeline_file.h"
#include "traces/trace_validator.h"

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;
using ir::Error;
using ir::ErrorKind;
using ir::FileKind;

struct CheckArguments {
  std::string file;
  bool json = false;
};

/// What was found: faults, or what the file holds in a few words.
struct Finding {
  FileKind kind = FileKind::Unknown;
  ir::Status status;
  std::string content;
};

Finding check_schedule(FileKind kind, const ir::Result<ir::Schedule>& schedule) {
  if (!schedule.ok()) {
    return {kind, schedule.status(), {}};
  }
  const ir::Schedule& s = schedule.value();
  return {kind, ir::check_legal(s),
          fmt::format("{} tasks, {} edges, {} stages on {} devices, {} mini-batches of {} "
                      "micro-batches",
                      s.tasks.size(), s.edges.size(), s.stages.size(), s.devices, s.mini_batches,
                      s.micro_batches)};
}

Finding check_profile(FileKind kind, const ir::Result<ir::Profile>& profile) {
  if (!profile.ok()) {
    return {kind, profile.status(), {}};
  }
  return {kind,
          {},
          fmt::format("{} layers, {} edges, taken with {} samples", profile.value().layers.size(),
                      profile.value().edges.size(), profile.value().samples)};
}

/// The ten rules for any Chrome trace; one of ours must be a legal schedule, too.
Finding check_trace(const std::string& file, const std::string& text) {
  std::vector<ir::Diagnostic> faults = traces::validate_trace(text, file);
  if (!faults.empty()) {
    const bool unreadable = faults.front().code == "trace-1" || faults.front().code == "trace-9";
    return {FileKind::ChromeTrace,
            Error{unreadable ? ErrorKind::BadInput : ErrorKind::Illegal, std::move(faults)},
            {}};
  }
  if (!traces::is_timeline_file(text)) {
    return {FileKind::ChromeTrace, {}, "a Chrome trace of another program"};
  }
  const auto timeline = traces::read_timeline(text, file);
  if (!timeline.ok()) {
    return {FileKind::ChromeTrace, timeline.status(), {}};
  }
  return {FileKind::ChromeTrace, ir::check_legal(timeline.value().schedule),
          fmt::format("a {} of {} tasks, makespan {:.3f} ms",
                      timeline.value().timeline.measured ? "run" : "plan",
                      timeline.value().timeline.spans.size(),
                      static_cast<double>(ir::makespan(timeline.value().timeline)) / 1e6)};
}

Finding check_content(const std::string& file, const std::string& text) {
  const FileKind kind = ir::file_kind(file, text);
  switch (kind) {
    case FileKind::ScheduleJson:
      return check_schedule(kind, ir::schedule_from_json(text, file));
    case FileKind::ScheduleText:
      return check_schedule(kind, ir::schedule_from_text(text, file));
    case FileKind::Profile:
      return check_profile(kind, ir::profile_from_json(text, file));
    case FileKind::PipedreamGraph: {
      auto graph = ir::pipedream_graph_from_text(text, file, 1);
      if (!graph.ok()) {
        return {kind, graph.status(), {}};
      }
      return {kind,
              {},
              fmt::format("{} layers, {} edges", graph.value().profile.layers.size(),
                          graph.value().profile.edges.size())};
    }
    case FileKind::Cluster: {
      const auto cluster = ir::cluster_from_json(text, file);
      if (!cluster.ok()) {
        return {kind, cluster.status(), {}};
      }
      return {kind,
              {},
              fmt::format("{} devices, {} links, {} shared links", cluster.value().devices.size(),
                          cluster.value().links.size(), cluster.value().shared_links.size())};
    }
    case FileKind::ChromeTrace:
      return check_trace(file, text);
    case FileKind::PytorchCsv:
      return {kind,
              ir::make_error(ErrorKind::BadInput, "csv", file,
                             "PyTorch's CSV is written by xpipe schedule, but not read by this "
                             "version; expected a schedule as .json or .tasks"),
              {}};
    case FileKind::OtherJson: {
      const auto parsed = ir::parse_json(text, file);
      if (!parsed.ok()) {
        return {kind, parsed.status(), {}};
      }
      break;
    }
    case FileKind::Unknown:
      break;
  }
  const bool blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
  const std::string found = blank                         ? "is empty"
                            : kind == FileKind::OtherJson ? "is JSON without a \"format\" of ours"
                                                          : "is of no known kind";
  return {kind,
          ir::make_error(
              ErrorKind::BadInput, "file-kind", file,
              found + ": expected a schedule (.tasks, or \"format\": \"xpipe.schedule\"), a "
                      "profile (\"xpipe.profile\"), a cluster (\"xpipe.cluster\"), a PipeDream "
                      "graph.txt or a Chrome trace"),
          {}};
}

int print_json(const std::string& file, const Finding& finding) {
  Json document = {{"format", "xpipe.check"},
                   {"version", 1},
                   {"file", file},
                   {"kind", ir::kind_name(finding.kind)},
                   {"legal", finding.status.ok()},
                   {"content", finding.content},
                   {"diagnostics", Json::array()}};
  if (!finding.status.ok()) {
    document["content"] = nullptr;
    for (const ir::Diagnostic& d : finding.status.error().diagnostics) {
      document["diagnostics"].push_back(
          {{"code", d.code}, {"where", d.where}, {"message", d.message}});
    }
  }
  std::cout << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  return finding.status.ok() ? kExitOk : exit_status_of(finding.status.error().kind);
}

int check_command(const CheckArguments& arguments) {
  const auto text = ir::read_file(arguments.file);
  const Finding finding = text.ok() ? check_content(arguments.file, text.value())
                                    : Finding{FileKind::Unknown, text.status(), {}};
  if (arguments.json) {
    return print_json(arguments.file, finding);
  }
  if (!finding.status.ok()) {
    return report_error(finding.status.error());
  }
  std::cout << arguments.file << ": " << ir::kind_name(finding.kind) << ", " << finding.content
            << ": no faults\n";
  return kExitOk;
}

}  // namespace

void add_check_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "check", "validate a schedule, profile, cluster or trace, and name every fault");
  auto arguments = std::make_shared<CheckArguments>();
  text(*command, "FILE", arguments->file, "FILE", "what it is is told by its content")->required();
  command->add_flag("--json", arguments->json, "one JSON document, diagnostics included");
  command->footer(
      "Example: xpipe check schedule.json\n"
      "Exit status 3: it cannot be read as what it is; 4: it reads, and is not legal.");
  command->callback([&context, arguments] { context.exit_status = check_command(*arguments); });
}

}  // namespace xpipe::app
