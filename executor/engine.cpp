#include "executor/engine.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ir/task.h"
#include "ir/text.h"
#include "scheduler/ready_tracker.h"

namespace xpipe::executor {

namespace {

using ir::Error;
using ir::ErrorKind;
using ir::index_of;
using ir::Status;
using ir::TaskId;

std::size_t kind_index(const ir::Schedule& schedule, TaskId task) {
  return static_cast<std::size_t>(schedule.task(task).kind());
}

/// Which tasks are run here: all of them, or those of the local devices.
class Locals {
 public:
  Locals(const ir::Schedule& schedule, const RemoteTasks* remote) : schedule_(schedule) {
    if (remote != nullptr) {
      lanes_.reserve(schedule.lanes.size());
      for (const ir::Lane& lane : schedule.lanes) {
        lanes_.push_back(remote->is_local(lane.device));
      }
    }
  }

  [[nodiscard]] bool has(TaskId task) const {
    return lanes_.empty() || lanes_[index_of(schedule_.task(task).lane)];
  }

 private:
  const ir::Schedule& schedule_;
  std::vector<bool> lanes_;  ///< by LaneId; empty: all are local
};

/// One fault for every kind that is run here and that `handlers` lacks.
Status check_handlers(const ir::Schedule& schedule,
                      const Locals& locals,
                      const HandlerTable& handlers) {
  std::array<std::uint32_t, ir::kTaskKinds> count{};
  std::array<TaskId, ir::kTaskKinds> first{};
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    if (!locals.has(TaskId{i})) {
      continue;
    }
    const std::size_t kind = kind_index(schedule, TaskId{i});
    if (count[kind]++ == 0) {
      first[kind] = TaskId{i};
    }
  }
  Error error{ErrorKind::Usage, {}};
  for (std::size_t kind = 0; kind < ir::kTaskKinds; ++kind) {
    if (count[kind] > 0 && !handlers[kind]) {
      const std::string name(ir::kind_name(static_cast<ir::TaskKind>(kind)));
      error.diagnostics.push_back(
          {"no-handler", ir::to_text(schedule.task(first[kind])),
           "no handler for the kind '" + name + "', of which the schedule has " +
               std::to_string(count[kind]) + " task(s); give the handler table an entry for it"});
    }
  }
  return error.diagnostics.empty() ? Status() : Status(std::move(error));
}

/// Puts the task's text form in front of where the handler saw the fault.
Error with_task(Error error, const ir::Task& task) {
  const std::string text = ir::to_text(task);
  for (ir::Diagnostic& diagnostic : error.diagnostics) {
    diagnostic.where = diagnostic.where.empty() ? text : text + ", " + diagnostic.where;
  }
  return error;
}

Error handler_failed(const ir::Task& task, std::string what) {
  return ir::make_error(ErrorKind::Runtime, "handler-failed", ir::to_text(task), std::move(what));
}

/// Calls the handler of a task. Refers to what outlives a handler that hangs, and to nothing of the
/// engine's own; small enough for std::function not to allocate.
struct Work {
  const ir::Schedule* schedule;
  const HandlerTable* handlers;

  Status operator()(TaskId id) const;
};

Status Work::operator()(TaskId id) const {
  const ir::Task& task = schedule->task(id);
  try {
    Status status = (*handlers)[kind_index(*schedule, id)](*schedule, id);
    return status.ok() ? status : Status(with_task(status.error(), task));
  } catch (const std::exception& exception) {
    return handler_failed(task, exception.what());
  } catch (...) {
    return handler_failed(task, "threw something that is no std::exception");
  }
}

/// Tells the other processes that a task is over.
struct Tell {
  const ir::Schedule* schedule;
  RemoteTasks* remote;

  Status operator()(TaskId id) const {
    try {
      return remote->done(id);
    } catch (const std::exception& exception) {
      return handler_failed(schedule->task(id), exception.what());
    }
  }
};

/// Tells the backend of every remote task that a local one waits for.
Status announce(const ir::Schedule& schedule,
                const scheduler::TaskGraph& graph,
                const Locals& locals,
                const RemoteTasks& remote,
                Backend& backend) {
  std::vector<bool> announced(schedule.tasks.size());
  for (std::uint32_t i = 0; i < schedule.tasks.size(); ++i) {
    if (!locals.has(TaskId{i})) {
      continue;
    }
    for (const TaskId before : graph.predecessors(TaskId{i})) {
      if (locals.has(before) || announced[index_of(before)]) {
        continue;
      }
      announced[index_of(before)] = true;
      const ir::DeviceId device = schedule.lane(schedule.task(before).lane).device;
      if (Status status = backend.expect(Event{before}, remote.owner(device)); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

/// Keeps a backend attached to the other processes while a run lasts.
class Attached {
 public:
  Attached(RemoteTasks* remote, const ir::Schedule& schedule, Backend& backend) : remote_(remote) {
    if (remote_ != nullptr) {
      remote_->attach(schedule, backend);
    }
  }

  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  ~Attached() {
    if (remote_ != nullptr) {
      remote_->detach();
    }
  }

 private:
  RemoteTasks* remote_;
};

}  // namespace

ir::Result<ir::Timeline> run(const ir::Schedule& schedule,
                             const HandlerTable& handlers,
                             Backend& backend,
                             RemoteTasks* remote) {
  const Locals locals(schedule, remote);
  if (Status status = check_handlers(schedule, locals, handlers); !status.ok()) {
    return status.error();
  }
  const scheduler::TaskGraph graph(schedule);
  const std::vector<TaskId> order = scheduler::topological_order(graph);
  if (Status status = backend.begin(schedule); !status.ok()) {
    return status.error();
  }
  if (remote != nullptr) {
    if (Status status = announce(schedule, graph, locals, *remote, backend); !status.ok()) {
      return status.error();
    }
  }
  const Attached attached(remote, schedule, backend);
  for (const TaskId task : order) {
    if (!locals.has(task)) {
      continue;
    }
    const ir::LaneId lane = schedule.task(task).lane;
    for (const TaskId before : graph.predecessors(task)) {
      if (schedule.task(before).lane != lane) {
        backend.wait(lane, Event{before});
      }
    }
    const Work work{&schedule, &handlers};
    const bool told = std::ranges::any_of(graph.successors(task),
                                          [&locals](TaskId after) { return !locals.has(after); });
    if (told) {
      backend.enqueue_told(lane, task, work, Tell{&schedule, remote});
    } else {
      backend.enqueue(lane, task, work);
    }
  }
  if (Status status = backend.synchronize(); !status.ok()) {
    return status.error();
  }
  return backend.timeline();
}

}  // namespace xpipe::executor
