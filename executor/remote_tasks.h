// The tasks of a schedule that other processes run, as the engine sees them: it asks which devices
// are local, tells of local tasks that others wait for, and is told of theirs through
// Backend::complete(). How the news travels is executor/processes' business.
//
//   process 0   compute 0   0F0  0F1 ......... 0B0       local: run here
//               send 0>1       0SEND_F0 --done()--> ...
//   process 1   receive 0>1        ^ complete() --> 1RECV_F0      remote: announced, then waited
//   for
//
// Thread-safety: attach() and detach() from the engine's thread; done() from any lane's; the rest
// from anywhere.
#pragma once

#include <string>

#include "ir/ids.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::executor {

class Backend;

class RemoteTasks {
 public:
  RemoteTasks() = default;
  RemoteTasks(const RemoteTasks&) = delete;
  RemoteTasks& operator=(const RemoteTasks&) = delete;
  virtual ~RemoteTasks() = default;

  /// Whether this process runs the lanes of `device`.
  [[nodiscard]] virtual bool is_local(ir::DeviceId device) const = 0;

  /// The process that runs `device`, as printed: "rank 1".
  [[nodiscard]] virtual std::string owner(ir::DeviceId device) const = 0;

  /// A run begins: from now on, until detach(), `backend` is told of remote tasks that are done
  /// (those of before included) and stopped when another process fails. Every external event has
  /// been announced. `schedule` and `backend` outlive the run.
  virtual void attach(const ir::Schedule& schedule, Backend& backend) = 0;

  /// A local task that a task of another process waits for is done. Must not block for long.
  virtual ir::Status done(ir::TaskId task) = 0;

  /// After it the backend is not called any more.
  virtual void detach() = 0;
};

}  // namespace xpipe::executor
