// Tells what kind of file a text is, by its content; only the text form of schedules is told by its
// suffix, .tasks (design.md §10). For `xpipe check` and `xpipe convert`.
#pragma once

#include <cstdint>
#include <string_view>

namespace xpipe::ir {

enum class FileKind : std::uint8_t {
  ScheduleJson,    ///< "format": "xpipe.schedule"
  ScheduleText,    ///< .tasks
  Profile,         ///< "format": "xpipe.profile"
  Cluster,         ///< "format": "xpipe.cluster"
  PipedreamGraph,  ///< graph.txt
  ChromeTrace,     ///< an object with "traceEvents", or an array of events
  PytorchCsv,      ///< rows of actions
  OtherJson,       ///< begins like JSON and is none of these: parse_json() may say what is wrong
  Unknown,
};

/// "schedule", "profile", "Chrome trace", ... as messages say it.
[[nodiscard]] std::string_view kind_name(FileKind kind);

/// Looks no further than it needs: at a text's first line, at the top-level keys of JSON up to the
/// telling one. The answer is a guess at what the file should be; its reader says whether it is.
[[nodiscard]] FileKind file_kind(std::string_view path, std::string_view content);

}  // namespace xpipe::ir
