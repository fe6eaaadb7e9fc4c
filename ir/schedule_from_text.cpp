#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/utf8.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kHeader = "# xpipe.schedule 1";

struct Piece {
  std::string_view text;
  std::size_t column = 1;  ///< from 1
};

std::vector<Piece> split_at_blanks(std::string_view line, std::size_t from) {
  std::vector<Piece> pieces;
  while (from < line.size()) {
    if (line[from] == ' ' || line[from] == '\t') {
      ++from;
      continue;
    }
    const std::size_t end = std::min(line.find_first_of(" \t", from), line.size());
    pieces.push_back({line.substr(from, end - from), from + 1});
    from = end;
  }
  return pieces;
}

/// Where the two names of "A>B" part: the '>' outside brackets; npos if there is none.
std::size_t edge_arrow(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (text[i] == '>' && depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

class ScheduleReader {
 public:
  ScheduleReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<Schedule> read() {
    std::size_t begin = 0;
    while (begin < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string_view line = text_.substr(begin, end - begin);
      if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
      }
      ++line_;
      read_line(line);
      begin = end + 1;
    }
    if (line_ == 0) {
      line_ = 1;
      fault(1, "header", "the file is empty: expected \"" + std::string(kHeader) + "\"");
    }
    finish();
    if (!faults_.empty()) {
      return Error{ErrorKind::BadInput, std::move(faults_)};
    }
    return std::move(schedule_);
  }

 private:
  struct NamedEdge {
    Piece piece;
    std::size_t line;
  };

  void fault_at(std::size_t line,
                std::size_t column,
                std::string code,
                const std::string& message) {
    std::string where = file_.empty() ? "" : std::string(file_) + ": ";
    where += "line " + std::to_string(line) + ", column " + std::to_string(column);
    faults_.push_back({std::move(code), std::move(where), one_line(message)});
  }

  void fault(std::size_t column, std::string code, const std::string& message) {
    fault_at(line_, column, std::move(code), message);
  }

  template <typename Number>
  std::optional<Number> number(std::string_view text, std::size_t column, std::string_view what) {
    Number value{};
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto result = std::from_chars(begin, end, value);
    const bool plain = !text.empty() && text[0] != '-' && (text.size() == 1 || text[0] != '0');
    if (result.ec != std::errc{} || result.ptr != end || !plain) {
      fault(column, "number",
            "expected " + std::string(what) + " from 0 to " +
                std::to_string(std::numeric_limits<Number>::max()) +
                " in decimal digits, found \"" + std::string(text) + "\"");
      return std::nullopt;
    }
    return value;
  }

  std::string unescape(std::string_view text, std::size_t column) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      unsigned value = 0;
      const char* digits = text.data() + i + 2;
      const bool long_enough = i + 3 < text.size() && text[i + 1] == 'x';
      if (!long_enough || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
        fault(column + i, "escape", "expected \\xHH after a backslash, with two hex digits");
        return out;
      }
      out += static_cast<char>(value);
      i += 3;
    }
    return out;
  }

  void read_line(std::string_view line) {
    if (const auto at = invalid_utf8_at(line)) {
      fault(*at + 1, "utf-8", "invalid UTF-8: expected the file in UTF-8");
      return;
    }
    if (line_ == 1) {
      if (line != kHeader) {
        const bool mark = line.substr(0, 3) == "\xEF\xBB\xBF";
        fault(1, "header",
              "expected \"" + std::string(kHeader) + "\"" +
                  (mark ? ", found a byte order mark: save the file without it" : ""));
      }
      return;
    }
    if (line.empty() || line[0] == '#') {
      return;
    }
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const std::string_view rest = line.substr(std::min(end + 1, line.size()));
    if (word == "policy") {
      once(policy_seen_, word);
      schedule_.policy = unescape(rest, end + 2);
    } else if (word == "option") {
      read_option(rest, end + 2);
    } else if (word == "micro-batches") {
      read_count(micro_batches_seen_, word, rest, end + 2, schedule_.micro_batches);
    } else if (word == "mini-batches") {
      read_count(mini_batches_seen_, word, rest, end + 2, schedule_.mini_batches);
    } else if (word == "devices") {
      read_count(devices_seen_, word, rest, end + 2, schedule_.devices);
    } else if (word == "stage") {
      read_stage(line);
    } else if (word == "compute" || word == "send" || word == "receive") {
      read_lane(line, word);
    } else if (word == "ids:") {
      read_ids(line);
    } else if (word == "edges:") {
      for (const Piece& piece : split_at_blanks(line, end)) {
        edges_.push_back({piece, line_});
      }
    } else {
      fault(1, "unknown-line",
            "expected policy, option, micro-batches, mini-batches, devices, stage, compute, send, "
            "receive, ids: or edges:, found \"" +
                std::string(word) + "\"");
    }
  }

  void once(bool& seen, std::string_view word) {
    if (seen) {
      fault(1, "duplicate-line", "\"" + std::string(word) + "\" is given twice");
    }
    seen = true;
  }

  void read_count(bool& seen,
                  std::string_view word,
                  std::string_view rest,
                  std::size_t column,
                  std::uint32_t& into) {
    once(seen, word);
    into = number<std::uint32_t>(rest, column, word).value_or(into);
  }

  void read_option(std::string_view rest, std::size_t column) {
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) {
      fault(column, "option", "expected name=value, found \"" + std::string(rest) + "\"");
      return;
    }
    std::string name = unescape(rest.substr(0, equals), column);
    if (!option_names_.insert(name).second) {
      fault(column, "duplicate-line", "option " + name + " is given twice");
    }
    schedule_.options.emplace_back(std::move(name),
                                   unescape(rest.substr(equals + 1), column + equals + 1));
  }

  void read_stage(std::string_view line) {
    const std::vector<Piece> pieces = split_at_blanks(line, 0);
    const bool replicated = pieces.size() == 6 && pieces[2].text == "devices";
    if (pieces.size() != 6 || (pieces[2].text != "device" && !replicated) ||
        pieces[4].text != "slots") {
      fault(1, "stage",
            "expected \"stage K device P slots S\" or \"stage K devices P,Q slots S\", found \"" +
                std::string(line) + "\"");
      return;
    }
    const auto stage = number<std::uint16_t>(pieces[1].text, pieces[1].column, "stage");
    std::vector<DeviceId> devices;
    std::size_t begin = 0;
    while (begin <= pieces[3].text.size()) {
      const std::size_t end = replicated
                                  ? std::min(pieces[3].text.find(',', begin), pieces[3].text.size())
                                  : pieces[3].text.size();
      const auto device = number<std::uint16_t>(pieces[3].text.substr(begin, end - begin),
                                                pieces[3].column + begin, "device");
      if (!device) {
        return;
      }
      devices.push_back(DeviceId{*device});
      begin = end + 1;
    }
    const auto slots = number<std::uint16_t>(pieces[5].text, pieces[5].column, "slots");
    if (!stage || !slots) {
      return;
    }
    if (*stage != schedule_.stages.size()) {
      fault(pieces[1].column, "stage",
            "stages are listed in order: expected stage " +
                std::to_string(schedule_.stages.size()) + ", found " + std::to_string(*stage));
    }
    schedule_.stages.push_back({std::move(devices), *slots});
  }

  void read_lane(std::string_view line, std::string_view word) {
    Lane lane;
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::size_t begin = std::min(word.size() + 1, colon);
    const std::string_view ends = line.substr(begin, colon - begin);
    const std::size_t arrow = ends.find('>');
    const bool compute = word == "compute";
    if (colon == line.size() || compute != (arrow == std::string_view::npos)) {
      fault(1, "lane",
            compute ? "expected \"compute DEVICE: task task ...\""
                    : "expected \"" + std::string(word) + " FROM>TO: task task ...\"");
    } else if (compute) {
      lane.device = DeviceId{number<std::uint16_t>(ends, begin + 1, "device").value_or(0)};
      lane.peer = lane.device;
    } else {
      const DeviceId from{
          number<std::uint16_t>(ends.substr(0, arrow), begin + 1, "device").value_or(0)};
      const DeviceId to{
          number<std::uint16_t>(ends.substr(arrow + 1), begin + arrow + 2, "device").value_or(0)};
      lane.kind = word == "send" ? LaneKind::Send : LaneKind::Receive;
      lane.device = word == "send" ? from : to;
      lane.peer = word == "send" ? to : from;
    }
    const LaneId id{static_cast<std::uint32_t>(schedule_.lanes.size())};
    for (const Piece& piece : split_at_blanks(line, std::min(colon + 1, line.size()))) {
      Result<Task> task = task_from_text(piece.text);
      if (!task.ok()) {
        const Diagnostic& problem = task.error().diagnostics.front();
        fault(piece.column, problem.code, problem.where + ": " + problem.message);
        continue;
      }
      task.value().lane = id;
      lane.order.push_back(TaskId{static_cast<std::uint32_t>(schedule_.tasks.size())});
      schedule_.tasks.push_back(task.value());
    }
    schedule_.lanes.push_back(std::move(lane));
    lane_ids_.emplace_back();
  }

  void read_ids(std::string_view line) {
    if (lane_ids_.empty() || !lane_ids_.back().empty()) {
      fault(1, "ids", "expected one \"ids:\" line after the lane it is for");
      return;
    }
    ids_seen_ = true;
    std::vector<std::uint32_t>& ids = lane_ids_.back();
    const std::size_t expected = schedule_.lanes.back().order.size();
    for (const Piece& piece : split_at_blanks(line, 4)) {
      const std::size_t dash = std::min(piece.text.find('-'), piece.text.size());
      const auto first = number<std::uint32_t>(piece.text.substr(0, dash), piece.column, "task id");
      auto last = first;
      if (dash < piece.text.size()) {
        last =
            number<std::uint32_t>(piece.text.substr(dash + 1), piece.column + dash + 1, "task id");
      }
      if (!first || !last) {
        return;
      }
      if (*last < *first || *last - *first >= expected - std::min(expected, ids.size())) {
        fault(piece.column, "ids",
              "expected " + std::to_string(expected) + " ids for this lane, found a range \"" +
                  std::string(piece.text) + "\" that does not fit");
        return;
      }
      for (std::uint64_t id = *first; id <= *last; ++id) {
        ids.push_back(static_cast<std::uint32_t>(id));
      }
    }
    if (ids.size() != expected) {
      fault(1, "ids",
            "expected " + std::to_string(expected) + " ids, one per task of the lane, found " +
                std::to_string(ids.size()));
    }
  }

  /// Moves the tasks to the ids that the file gives them.
  void renumber() {
    const std::size_t count = schedule_.tasks.size();
    std::vector<Task> tasks(count);
    std::vector<bool> taken(count, false);
    for (std::size_t l = 0; l < schedule_.lanes.size(); ++l) {
      Lane& lane = schedule_.lanes[l];
      if (lane_ids_[l].size() != lane.order.size()) {
        fault(1, "ids",
              "lane \"" + lane_name(lane) +
                  "\" has tasks and no ids: give ids for all "
                  "lanes or for none");
        return;
      }
      for (std::size_t i = 0; i < lane.order.size(); ++i) {
        const std::uint32_t id = lane_ids_[l][i];
        if (id >= count || taken[id]) {
          fault(1, "ids",
                "lane \"" + lane_name(lane) + "\": id " + std::to_string(id) +
                    (id >= count ? " is not below the number of tasks, " + std::to_string(count)
                                 : " is given twice"));
          return;
        }
        taken[id] = true;
        tasks[id] = schedule_.task(lane.order[i]);
        lane.order[i] = TaskId{id};
      }
    }
    schedule_.tasks = std::move(tasks);
  }

  void finish() {
    const std::pair<bool, std::string_view> required[] = {{policy_seen_, "policy"},
                                                          {micro_batches_seen_, "micro-batches"},
                                                          {mini_batches_seen_, "mini-batches"},
                                                          {devices_seen_, "devices"}};
    for (const auto& [seen, word] : required) {
      if (!seen) {
        fault(1, "missing-line", "the file ends without a line \"" + std::string(word) + " ...\"");
      }
    }
    if (ids_seen_ && faults_.empty()) {
      renumber();
    }
    if (edges_.empty()) {
      return;
    }
    const TaskNames names(schedule_.tasks);
    const bool lanes_are_sound = faults_.empty();
    for (const NamedEdge& edge : edges_) {
      const std::size_t arrow = edge_arrow(edge.piece.text);
      if (arrow == std::string_view::npos) {
        fault_at(edge.line, edge.piece.column, "edge",
                 "expected FROM>TO, found \"" + std::string(edge.piece.text) + "\"");
        continue;
      }
      const std::string_view ends[] = {edge.piece.text.substr(0, arrow),
                                       edge.piece.text.substr(arrow + 1)};
      std::optional<TaskId> ids[2];
      for (int end = 0; end < 2; ++end) {
        auto [id, problem] = names.find(ends[end]);
        ids[end] = id;
        if (!id && lanes_are_sound) {
          fault_at(edge.line, edge.piece.column + (end == 0 ? 0 : arrow + 1), "edge",
                   "\"" + std::string(ends[end]) + "\": " + problem);
        }
      }
      if (ids[0] && ids[1]) {
        schedule_.edges.push_back({*ids[0], *ids[1]});
      }
    }
    std::sort(schedule_.edges.begin(), schedule_.edges.end());
  }

  std::string_view text_;
  std::string_view file_;
  std::size_t line_ = 0;
  Schedule schedule_;
  std::vector<Diagnostic> faults_;
  std::vector<NamedEdge> edges_;
  std::vector<std::vector<std::uint32_t>> lane_ids_;  ///< by LaneId; empty: none given
  std::unordered_set<std::string> option_names_;
  bool ids_seen_ = false;
  bool policy_seen_ = false;
  bool micro_batches_seen_ = false;
  bool mini_batches_seen_ = false;
  bool devices_seen_ = false;
};

}  // namespace

Result<Schedule> schedule_from_text(std::string_view text, std::string_view file) {
  return ScheduleReader(text, file).read();
}

}  // namespace xpipe::ir
