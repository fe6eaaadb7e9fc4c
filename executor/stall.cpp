#include "executor/stall.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "ir/text.h"

namespace xpipe::executor {

namespace {

using Heads = std::vector<std::optional<LaneHead>>;
using ir::index_of;

class Stall {
 public:
  Stall(const ir::Schedule& schedule,
        const Heads& heads,
        ir::Nanos time_out,
        const std::vector<std::string>& owners)
      : schedule_(schedule), heads_(heads), time_out_(time_out), owners_(owners) {}

  ir::Error describe() {
    if (const std::vector<std::uint32_t> ring = find_ring(); !ring.empty()) {
      add_ring(ring);
    }
    for (const auto& head : heads_) {
      if (head && head->running) {
        add(head->task, "is being run by " + device_of(head->task) +
                            " and does not end; raise the time-out if its work may take so long");
      }
    }
    // What another process has not done comes before what waits for this one's own tasks.
    for (const bool across : {true, false}) {
      for (const auto& head : heads_) {
        if (head && !head->running && waits_for_another(*head) == across) {
          add(head->task, device_of(head->task) + " waits to start it, " + reason(*head));
        }
      }
    }
    if (error_.diagnostics.empty()) {
      error_.diagnostics.push_back({"time-out", "", "every lane is done" + since()});
    }
    return std::move(error_);
  }

 private:
  [[nodiscard]] std::string text(ir::TaskId task) const {
    return ir::to_text(schedule_.task(task));
  }

  [[nodiscard]] std::uint32_t lane_of(ir::TaskId task) const {
    return index_of(schedule_.task(task).lane);
  }

  [[nodiscard]] std::string device_of(ir::TaskId task) const {
    return "device " + std::to_string(index_of(schedule_.lanes[lane_of(task)].device));
  }

  /// The other process that runs `task`; empty: this one does.
  [[nodiscard]] std::string owner_of(ir::TaskId task) const {
    return owners_.empty() ? "" : owners_[index_of(schedule_.lanes[lane_of(task)].device)];
  }

  [[nodiscard]] bool waits_for_another(const LaneHead& head) const {
    return head.waits_for && !owner_of(*head.waits_for).empty();
  }

  [[nodiscard]] std::string since() const {
    std::ostringstream text;
    text << "; nothing has moved for " << static_cast<double>(time_out_) / 1e9 << " s";
    return text.str();
  }

  void add(ir::TaskId task, std::string message) {
    if (error_.diagnostics.empty()) {
      message += since();
    }
    error_.diagnostics.push_back({"time-out", text(task), std::move(message)});
  }

  [[nodiscard]] std::string reason(const LaneHead& head) const {
    if (!head.waits_for) {
      return "but is busy";
    }
    const ir::TaskId event = *head.waits_for;
    if (const std::string owner = owner_of(event); !owner.empty()) {
      return "until " + text(event) + " on " + device_of(event) + " is done, which " + owner +
             " has not said";
    }
    std::string reason = "until " + text(event) + " on " + device_of(event) + " is done";
    const std::optional<LaneHead>& blocking = heads_[lane_of(event)];
    if (!blocking) {
      return reason + ", which was never enqueued";
    }
    if (blocking->task != event) {
      reason += ", which stands behind " + text(blocking->task);
    }
    return reason;
  }

  /// The lane that the head of `lane` waits for.
  [[nodiscard]] std::optional<std::uint32_t> next(std::uint32_t lane) const {
    const std::optional<LaneHead>& head = heads_[lane];
    return head && !head->running && head->waits_for ? std::optional(lane_of(*head->waits_for))
                                                     : std::nullopt;
  }

  /// Lanes that wait for each other, the smallest first; empty when there is no ring.
  [[nodiscard]] std::vector<std::uint32_t> find_ring() const {
    std::vector<std::uint32_t> seen_from(heads_.size(), 0);  // 1 + the lane the walk began at
    for (std::uint32_t first = 0; first < heads_.size(); ++first) {
      std::optional<std::uint32_t> lane = first;
      while (lane && seen_from[*lane] == 0) {
        seen_from[*lane] = first + 1;
        lane = next(*lane);
      }
      if (lane && seen_from[*lane] == first + 1) {
        std::vector<std::uint32_t> ring;
        for (std::uint32_t at = *lane; ring.empty() || at != ring.front(); at = *next(at)) {
          ring.push_back(at);
        }
        std::ranges::rotate(ring, std::ranges::min_element(ring));
        return ring;
      }
    }
    return {};
  }

  void add_ring(const std::vector<std::uint32_t>& ring) {
    std::string message = "tasks wait for each other in a ring: ";
    for (const std::uint32_t lane : ring) {
      const LaneHead& head = *heads_[lane];
      message +=
          text(head.task) + " on " + device_of(head.task) + " waits for " + text(*head.waits_for);
      const ir::TaskId blocking = heads_[lane_of(*head.waits_for)]->task;
      message += blocking == *head.waits_for ? "; " : " behind " + text(blocking) + "; ";
    }
    message += "change the order of one of these lanes";
    add(heads_[ring.front()]->task, std::move(message));
  }

  const ir::Schedule& schedule_;
  const Heads& heads_;
  const ir::Nanos time_out_;
  const std::vector<std::string>& owners_;
  ir::Error error_{ir::ErrorKind::Runtime, {}};
};

}  // namespace

ir::Error describe_stall(const ir::Schedule& schedule,
                         const Heads& heads,
                         ir::Nanos time_out,
                         const std::vector<std::string>& owners) {
  return Stall(schedule, heads, time_out, owners).describe();
}

}  // namespace xpipe::executor
