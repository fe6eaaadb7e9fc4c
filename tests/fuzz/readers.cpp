#include <algorithm>
#include <filesystem>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "executor/torch/image_files.h"
#include "ir/cluster_json.h"
#include "ir/file_kind.h"
#include "ir/pipedream_graph.h"
#include "ir/profile_json.h"
#include "ir/schedule_json.h"
#include "ir/text.h"
#include "ir/utf8.h"
#include "ir/validate.h"
#include "scheduler/cost_model.h"
#include "simulator/simulate.h"
#include "tests/fuzz/reader.h"
#include "tests/fuzz/seeds.h"
#include "traces/chrome_trace.h"
#include "traces/timeline_file.h"
#include "traces/trace_validator.h"

namespace xpipe::fuzz {

namespace {

/// Whether someone can read it in a terminal and in a log: one line of UTF-8.
bool is_one_line(std::string_view text) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  return !text.empty() && !ir::invalid_utf8_at(text) &&
         std::none_of(text.begin(), text.end(), control);
}

/// A ring of tasks is drawn below its message, a line a task.
std::string without_ring(std::string message) {
  for (std::size_t at = 0; (at = message.find("\n  ", at)) != std::string::npos;) {
    message.replace(at, 3, " / ");
  }
  return message;
}

/// What is wrong with the diagnostics of a schedule or trace that read well: "" for none.
std::string fault_of(const std::vector<ir::Diagnostic>& found) {
  for (const ir::Diagnostic& d : found) {
    const std::string message = d.code == "cycle" ? without_ring(d.message) : d.message;
    if (d.code.empty() || !is_one_line(d.where) || !is_one_line(message)) {
      return "a diagnostic is empty, or no line of UTF-8: [" + d.code + "] " + d.where + ": " +
             d.message;
    }
  }
  return "";
}

/// A legal schedule can be replayed, whatever file it came from.
std::string fault_of_replay(const ir::Schedule& schedule) {
  const auto stages = static_cast<std::uint32_t>(schedule.stages.size());
  if (schedule.devices > 64 || schedule.tasks.size() > 10'000) {
    return "";
  }
  const scheduler::CostModel costs =
      scheduler::uniform_costs(stages, schedule.devices, 1000, 2000, {});
  if (!scheduler::check_costs(costs, schedule).ok()) {
    return "";
  }
  const ir::Timeline timeline = simulator::simulate(schedule, costs);
  return timeline.spans.size() == schedule.tasks.size() ? "" : "replay: a task was not run";
}

std::string fault_of_schedule(const ir::Schedule& schedule) {
  const auto from_json = ir::schedule_from_json(ir::schedule_to_json(schedule), kFileName);
  if (!from_json.ok() || !(from_json.value() == schedule)) {
    return "round trip as JSON: " +
           (from_json.ok() ? "another schedule" : from_json.error().to_string());
  }
  const auto found = ir::validate(schedule);
  if (!found.empty()) {
    return fault_of(found);
  }
  // The text form can only say what is legal: it lists a task where its lane is.
  const auto from_text = ir::schedule_from_text(ir::schedule_to_text(schedule), kFileName);
  if (!from_text.ok() || !(from_text.value() == schedule)) {
    return "round trip as text: " +
           (from_text.ok() ? "another schedule" : from_text.error().to_string());
  }
  return fault_of_replay(schedule);
}

std::string fault_of_profile(const ir::Profile& profile) {
  const auto again = ir::profile_from_json(ir::profile_to_json(profile), kFileName);
  if (!again.ok()) {
    return "round trip: " + again.error().to_string();
  }
  return again.value() == profile ? "" : "round trip: another profile";
}

std::string fault_of_cluster(const ir::Cluster& cluster) {
  const auto again = ir::cluster_from_json(ir::cluster_to_json(cluster), kFileName);
  if (!again.ok()) {
    return "round trip: " + again.error().to_string();
  }
  return again.value() == cluster ? "" : "round trip: another cluster";
}

std::string fault_of_timeline(const traces::TimelineFile& file) {
  if (const auto found = ir::validate(file.schedule); !found.empty()) {
    return fault_of(found);
  }
  const auto written = traces::chrome_trace(file.schedule, file.timeline, file.info);
  if (!written.ok()) {
    return "write: " + written.error().to_string();
  }
  const auto again = traces::read_timeline(written.value(), kFileName);
  if (!again.ok()) {
    return "round trip: " + again.error().to_string();
  }
  return again.value() == file ? "" : "round trip: another timeline";
}

/// Nothing to write back: reading twice must give the same.
template <typename Read>
auto twice(Read read) {
  return [read](std::string_view text) {
    return judged(text, read, [&](const auto& value) {
      return read(text).value() == value ? std::string() : std::string("twice: another value");
    });
  };
}

ir::Result<std::vector<ir::Diagnostic>> validated_trace(std::string_view text) {
  return traces::validate_trace(text, kFileName);
}

/// A file for readers that want a path: in memory, as a disk is slow to be cut 100,000 times.
class InputFile {
 public:
  InputFile()
      : fd_(::memfd_create("xpipe-fuzz", MFD_CLOEXEC)),
        path_("/proc/self/fd/" + std::to_string(fd_)) {}

  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  ~InputFile() { ::close(fd_); }

  const std::filesystem::path& with(std::string_view content) {
    const auto size = static_cast<ssize_t>(content.size());
    const bool written =
        ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, content.data(), content.size(), 0) == size;
    XPIPE_CHECK(written) << path_.string() << " cannot be written";
    return path_;
  }

 private:
  int fd_;
  std::filesystem::path path_;
};

/// Names the file as the others do: its own name is another one every time.
ir::Error renamed(ir::Error error, const std::filesystem::path& path) {
  for (ir::Diagnostic& d : error.diagnostics) {
    if (d.where.starts_with(path.string())) {
      d.where.replace(0, path.string().size(), std::string(kFileName) + ": the file");
    }
  }
  return error;
}

ir::Result<std::string> read_images(std::string_view text) {
  static InputFile file;
  const std::filesystem::path& path = file.with(text);
  auto images = executor::nn::read_idx(path, 3);
  if (!images.ok()) {
    return renamed(images.error(), path);
  }
  return std::string(images.value().bytes.begin(), images.value().bytes.end());
}

ir::Result<executor::nn::ImageSet> read_cifar(std::string_view text) {
  static InputFile file;
  const std::filesystem::path& path = file.with(text);
  executor::nn::ImageSet set;
  if (ir::Status status = executor::nn::read_cifar10_file(path, set); !status.ok()) {
    return renamed(status.error(), path);
  }
  return set;
}

}  // namespace

std::string fault_of(const ir::Error& error) {
  if (error.kind != ir::ErrorKind::BadInput && error.kind != ir::ErrorKind::Illegal) {
    return "kind of error: neither BadInput nor Illegal: " + error.to_string();
  }
  if (error.diagnostics.empty()) {
    return "refused without a word";
  }
  const std::string head = std::string(kFileName) + ": ";
  for (const ir::Diagnostic& d : error.diagnostics) {
    if (!d.where.starts_with(head) || d.where.size() == head.size()) {
      return "no place in the file: '" + d.where + "': " + d.message;
    }
  }
  return fault_of(error.diagnostics);
}

std::string fault_of(const HeapUse& heap, std::size_t bytes) {
  const std::size_t most = kHeapBase + kHeapFactor * bytes;
  if (heap.peak > most) {
    return "heap: " + std::to_string(heap.peak) + " bytes held at once for " +
           std::to_string(bytes) + " of input, at most " + std::to_string(most);
  }
  if (heap.total > kWorkFactor * most) {
    return "heap in all: " + std::to_string(heap.total) + " bytes asked for, for " +
           std::to_string(bytes) + " of input, at most " + std::to_string(kWorkFactor * most);
  }
  return "";
}

const std::vector<Reader>& readers() {
  using View = std::string_view;
  static const std::vector<Reader> all = {
      {"profile", Grain::Json, profile_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return ir::profile_from_json(t, kFileName); }, fault_of_profile);
       }},
      {"graph.txt", Grain::Lines, graph_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return ir::pipedream_graph_from_text(t, kFileName, 64); },
             [](const ir::PipedreamGraph& graph) { return fault_of_profile(graph.profile); });
       }},
      {"cluster", Grain::Json, cluster_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return ir::cluster_from_json(t, kFileName); }, fault_of_cluster);
       }},
      {"schedule text", Grain::Lines, schedule_text_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return ir::schedule_from_text(t, kFileName); }, fault_of_schedule);
       }},
      {"schedule JSON", Grain::Json, schedule_json_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return ir::schedule_from_json(t, kFileName); }, fault_of_schedule);
       }},
      {"timeline", Grain::Json, timeline_seeds(),
       [](View text) {
         return judged(
             text, [](View t) { return traces::read_timeline(t, kFileName); }, fault_of_timeline);
       }},
      {"trace", Grain::Json, trace_seeds(),
       [](View text) {
         return judged(text, validated_trace,
                       [](const std::vector<ir::Diagnostic>& found) { return fault_of(found); });
       }},
      {"IDX images", Grain::Binary, idx_seeds(), twice(read_images)},
      {"CIFAR-10", Grain::Binary, cifar_seeds(), twice(read_cifar)},
      {"kind of file", Grain::Json, trace_seeds(),
       twice([](View t) { return ir::Result<ir::FileKind>(ir::file_kind("in", t)); })},
  };
  return all;
}

}  // namespace xpipe::fuzz
