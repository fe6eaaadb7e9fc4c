// The event queue: what happens next. Events are ordered by (time, sequence), the sequence being
// the order of push: of two events at one time the one that was pushed first comes first.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::simulator {

enum class EventKind : std::uint8_t {
  Start,   ///< all that the task waits for has arrived
  Finish,  ///< the task ends and its lane is free
};

struct Event {
  ir::Nanos time = 0;
  std::uint64_t sequence = 0;
  ir::TaskId task{};
  EventKind kind = EventKind::Start;

  /// (time, sequence) tells any two events of one queue apart.
  auto operator<=>(const Event&) const = default;
};

/// push and pop are logarithmic. Not thread-safe.
class EventQueue {
 public:
  /// Requires: `time` is not before the event popped last: the past is over.
  void push(ir::Nanos time, EventKind kind, ir::TaskId task) {
    XPIPE_CHECK(time >= now_) << "an event at " << time << " ns pushed at " << now_ << " ns";
    events_.push({time, next_sequence_++, task, kind});
  }

  /// Requires: !empty().
  Event pop() {
    const Event event = events_.top();
    events_.pop();
    XPIPE_CHECK(event.time >= now_) << "time fell from " << now_ << " to " << event.time << " ns";
    now_ = event.time;
    return event;
  }

  [[nodiscard]] bool empty() const { return events_.empty(); }

  /// The time of the next event. Requires: !empty().
  [[nodiscard]] ir::Nanos next_time() const { return events_.top().time; }

  /// The time of the event popped last; 0 before.
  [[nodiscard]] ir::Nanos now() const { return now_; }

 private:
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_sequence_ = 0;
  ir::Nanos now_ = 0;
};

}  // namespace xpipe::simulator
