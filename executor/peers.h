// The other processes of a training run, as the trainer sees them: who runs which device, the mail
// that goes with tasks, and plain messages at drained borders. executor/processes has the real
// ones; without several processes there is no Peers.
//
// Thread-safety: send() and receive() from the trainer's thread, at drained borders only.
#pragma once

#include <cstdint>
#include <string>

#include "executor/parcel.h"
#include "executor/remote_tasks.h"
#include "ir/ids.h"
#include "ir/status.h"

namespace xpipe::executor {

class Peers : public RemoteTasks {
 public:
  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const = 0;
  [[nodiscard]] virtual std::uint32_t rank_of(ir::DeviceId device) const = 0;

  [[nodiscard]] bool is_local(ir::DeviceId device) const override {
    return rank_of(device) == rank();
  }

  [[nodiscard]] std::string owner(ir::DeviceId device) const override {
    return "rank " + std::to_string(rank_of(device));
  }

  /// Who collects and delivers what goes with tasks, for the runs to come; outlives them.
  virtual void set_mail(Mail* mail) = 0;

  /// Sends a message to another rank, beside the tasks'. Does not wait for its arrival.
  virtual ir::Status send(std::uint32_t to, Parcel parcel) = 0;

  /// The next message of `from`, in the order in which it sent them.
  /// Errors: the first failure of any rank; Runtime "time-out", naming who waits for whom.
  [[nodiscard]] virtual ir::Result<Parcel> receive(std::uint32_t from) = 0;
};

}  // namespace xpipe::executor
