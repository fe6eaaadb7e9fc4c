#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/utf8.h"

namespace xpipe::ir {

namespace {

constexpr std::size_t kEdgesPerLine = 8;

void append_escaped(std::string& out, std::string_view text, bool is_name) {
  constexpr char kHex[] = "0123456789ABCDEF";
  const bool is_utf8 = !invalid_utf8_at(text);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_utf8) || c == '\\' ||
        (is_name && c == '=')) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
}

/// "0-3 7 9-11".
std::string id_ranges(const std::vector<TaskId>& ids) {
  std::string out;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t last = i;
    while (last + 1 < ids.size() && index_of(ids[last + 1]) == index_of(ids[last]) + 1) {
      ++last;
    }
    out += " " + std::to_string(index_of(ids[i]));
    if (last > i) {
      out += "-" + std::to_string(index_of(ids[last]));
    }
    i = last + 1;
  }
  return out;
}

bool ids_in_lane_order(const Schedule& schedule) {
  std::uint32_t next = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const TaskId id : lane.order) {
      if (index_of(id) != next++) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::string schedule_to_text(const Schedule& schedule) {
  std::size_t in_lanes = 0;
  for (const Lane& lane : schedule.lanes) {
    in_lanes += lane.order.size();
    for (const TaskId id : lane.order) {
      XPIPE_CHECK(index_of(id) < schedule.tasks.size()) << "task " << index_of(id);
    }
  }
  XPIPE_CHECK(in_lanes == schedule.tasks.size())
      << in_lanes << " places in lanes for " << schedule.tasks.size() << " tasks";

  std::string out = "# xpipe.schedule 1";
  out += "\npolicy ";
  append_escaped(out, schedule.policy, false);
  for (const auto& [name, value] : schedule.options) {
    out += "\noption ";
    append_escaped(out, name, true);
    out += '=';
    append_escaped(out, value, false);
  }
  out += "\nmicro-batches " + std::to_string(schedule.micro_batches);
  out += "\nmini-batches " + std::to_string(schedule.mini_batches);
  out += "\ndevices " + std::to_string(schedule.devices);
  for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
    const StageInfo& stage = schedule.stages[k];
    out += "\nstage " + std::to_string(k) + (stage.is_replicated() ? " devices " : " device ");
    for (std::size_t r = 0; r < stage.devices.size(); ++r) {
      out += (r == 0 ? "" : ",") + std::to_string(index_of(stage.devices[r]));
    }
    out += " slots " + std::to_string(stage.slots);
  }
  out += '\n';
  const bool plain_ids = ids_in_lane_order(schedule);
  for (const Lane& lane : schedule.lanes) {
    out += lane_name(lane) + ":";
    for (const TaskId id : lane.order) {
      out += ' ';
      out += to_text(schedule.task(id));
    }
    out += '\n';
    if (!plain_ids && !lane.order.empty()) {
      out += "ids:" + id_ranges(lane.order) + "\n";
    }
  }
  if (!schedule.edges.empty()) {
    const TaskNames names(schedule.tasks);
    for (std::size_t i = 0; i < schedule.edges.size(); ++i) {
      out += i % kEdgesPerLine == 0 ? (i == 0 ? "edges:" : "\nedges:") : "";
      out += " " + names.name(schedule.edges[i].from) + ">" + names.name(schedule.edges[i].to);
    }
    out += '\n';
  }
  return out;
}

}  // namespace xpipe::ir
