// The device interface: streams that run items in order, and events that order streams. It is the
// CUDA model because that is what the hardware offers; a CPU thread, a virtual clock and "at once"
// fit into it, too. One Backend serves all lanes of one run.
//
//   engine:  for every task in a topological order
//              for every predecessor p in another lane:  backend.wait(lane, event[p])
//              event[task] = backend.enqueue(lane, work)
//            backend.synchronize()
//
// Thread-safety: the engine calls from one thread; work runs wherever the backend runs it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"
#include "ir/timeline.h"

namespace xpipe::executor {

/// The completion of one task. The task's id: events are small values.
struct Event {
  ir::TaskId task{};
};

class Backend {
 public:
  /// The work of one task; its Status says whether it succeeded.
  using Work = std::function<ir::Status()>;

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "inline", "virtual", "cpu": as printed.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Called once, before anything else of a run. `schedule` outlives the run.
  virtual ir::Status begin(const ir::Schedule& schedule) = 0;

  /// What `lane` runs from here on starts only after `event` is done.
  virtual void wait(ir::LaneId lane, Event event) = 0;

  /// Puts the task at the end of its lane.
  virtual Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) = 0;

  /// Blocks until everything enqueued has run, or has been dropped after a failure. Returns the
  /// first failure by time, with the task's text; Runtime naming who waits for whom when nothing
  /// has moved for the time-out. After it no work runs any more.
  virtual ir::Status synchronize() = 0;

  /// Asks a run to stop: what has not started is dropped; safe from any thread.
  virtual void stop(ir::Error reason) = 0;

  /// Start and end of every task that ran, relative to begin(). Requires: synchronize() returned.
  [[nodiscard]] virtual ir::Timeline timeline() const = 0;
};

}  // namespace xpipe::executor
