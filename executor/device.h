// The device interface: streams that run items in order, and events that order streams. It is the
// CUDA model because that is what the hardware offers; a CPU thread, a virtual clock and "at once"
// fit into it, too. One Backend serves all lanes of a run, and several runs one after another.
//
//   engine:  for every task in a topological order
//              for every predecessor p in another lane:  backend.wait(lane, event[p])
//              event[task] = backend.enqueue(lane, work)
//            backend.synchronize()
//
// A wait holds for what is enqueued on the lane after it. A backend may start work as soon as it is
// enqueued or only in synchronize(); both are streams.
//
// A run may be a part of one: other processes run the tasks of the other devices. Their events are
// external: the engine announces them with expect(), and whoever hears of their end calls
// complete().
//
// Thread-safety: the engine calls from one thread; work runs wherever the backend runs it; stop()
// and complete() are safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

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
  /// The work of a task; its Status says whether it succeeded. Must not throw.
  using Work = std::function<ir::Status(ir::TaskId)>;

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "inline", "virtual", "cpu": as printed.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Called once a run, before anything else of it; forgets the failure of the run before, but not
  /// a stop(). `schedule` outlives the run.
  virtual ir::Status begin(const ir::Schedule& schedule) = 0;

  /// Announces that another process runs the event's task, and which ("rank 1"): complete() will
  /// say when it is done. Between begin() and the first wait for it. Errors: Usage "one-process"
  /// from a backend that waits for nobody else.
  virtual ir::Status expect(Event event, const std::string& owner) {
    (void)event;
    return ir::make_error(ir::ErrorKind::Usage, "one-process", "",
                          "the " + name() +
                              " device runs a schedule in one process and cannot "
                              "wait for " +
                              owner + "; use the cpu device");
  }

  /// The task of another process is done. Counts as a move for the time-out. Requires: expected in
  /// this run, synchronize() has not returned, once an event. Safe from any thread.
  virtual void complete(Event event) { (void)event; }

  /// What `lane` runs from here on starts only after `event` is done.
  virtual void wait(ir::LaneId lane, Event event) = 0;

  /// Puts the task at the end of its lane.
  virtual Event enqueue(ir::LaneId lane, ir::TaskId task, Work work) = 0;

  /// The same for a task that other processes wait for: `tell` is called once the work has
  /// succeeded and what it began is over, from the thread that finds so.
  virtual Event enqueue_told(ir::LaneId lane, ir::TaskId task, Work work, Work tell) {
    return enqueue(lane, task, [work = std::move(work), tell = std::move(tell)](ir::TaskId id) {
      ir::Status status = work(id);
      return status.ok() ? tell(id) : status;
    });
  }

  /// Blocks until everything enqueued has run, or has been dropped after a failure. Returns the
  /// first failure by time. After it no work runs any more.
  /// Errors: what the work returned; Runtime "time-out", naming who waits for whom, when nothing
  /// has moved for the backend's time-out (only then may work that hangs still be running; see
  /// there).
  virtual ir::Status synchronize() = 0;

  /// Asks the backend to stop: what has not started is dropped, and synchronize() returns `reason`
  /// unless something failed before. It sticks: later runs end at once with the same reason. So a
  /// signal watcher may call it at any moment. Safe from any thread, not from a signal handler.
  virtual void stop(ir::Error reason) = 0;

  /// Start and end of every task that ran to its end, by task id, relative to the moment from which
  /// work could run. After a success these are all tasks that were enqueued. Requires:
  /// synchronize() returned.
  [[nodiscard]] virtual ir::Timeline timeline() const = 0;

  /// The moment that timeline() counts from; absent where it is no moment of this machine's clock.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> origin() const {
    return std::nullopt;
  }
};

}  // namespace xpipe::executor
