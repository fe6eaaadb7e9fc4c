#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

/// One end of a message.
struct End {
  Pass pass = Pass::Forward;
  StageId from{};
  StageId to{};
  MicroBatch micro_batch{};
  TaskId task{};

  [[nodiscard]] auto key() const { return std::tuple(pass, from, to, micro_batch); }
};

std::string_view word(Pass pass) {
  return pass == Pass::Forward ? "forward" : "backward";
}

class Communication {
 public:
  Communication(const Index& index, const Grid& grid, Findings& findings)
      : schedule_(index.schedule), index_(index), grid_(grid), findings_(findings) {}

  void check() {
    collect();
    for (std::vector<End>* ends : {&sends_, &receives_}) {
      std::sort(ends->begin(), ends->end(), [](const End& a, const End& b) {
        return std::pair(a.key(), a.task) < std::pair(b.key(), b.task);
      });
      drop_twins(*ends);
    }
    pair_up();
    check_message_order();
    check_gradients();
    check_inputs();
  }

 private:
  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  [[nodiscard]] DeviceId device_of(StageId stage) const { return schedule_.stage(stage).device; }

  void collect() {
    const std::size_t cells = schedule_.stages.size() * grid_.micro_batches;
    fed_[0].assign(cells, false);
    fed_[1].assign(cells, false);
    for (std::uint32_t i = 0; i < schedule_.tasks.size(); ++i) {
      const Task& task = schedule_.tasks[i];
      if (const Send* send = std::get_if<Send>(&task.payload)) {
        const End end{send->pass, task.stage, send->peer, send->micro_batch, TaskId{i}};
        if (check_link(end, send->peer)) {
          sends_.push_back(end);
          fed(end.pass, end.to, end.micro_batch) = true;
        }
      } else if (const Receive* receive = std::get_if<Receive>(&task.payload)) {
        const End end{receive->pass, receive->peer, task.stage, receive->micro_batch, TaskId{i}};
        if (check_link(end, receive->peer)) {
          receives_.push_back(end);
          fed(end.pass, end.to, end.micro_batch) = true;
        }
      }
    }
  }

  /// Some message brings the input of `pass`, or its loss has been told already.
  std::vector<bool>::reference fed(Pass pass, StageId stage, MicroBatch j) {
    return fed_[static_cast<int>(pass)][index_of(stage) * grid_.micro_batches + index_of(j)];
  }

  bool check_link(const End& end, StageId peer) {
    const Task& task = schedule_.task(end.task);
    const Lane& lane = schedule_.lane(task.lane);
    const DeviceId own = device_of(task.stage);
    const DeviceId other = device_of(peer);
    if (own == other) {
      findings_.add("send-to-self", end.task,
                    "has both ends on device " + std::to_string(index_of(own)) +
                        ": expected no message, as the device's order is enough");
      return false;
    }
    if (lane.device != own || lane.peer != other) {
      const Lane wanted{lane.kind, own, other, {}};
      findings_.add("wrong-link", end.task,
                    "stands in lane \"" + lane_name(lane) + "\": expected lane \"" +
                        lane_name(wanted) + "\", between the devices of its stages");
    }
    if ((end.pass == Pass::Forward) != (end.from < end.to)) {
      findings_.add("message-direction", end.task,
                    "takes a " + std::string(word(end.pass)) + " from stage " +
                        std::to_string(index_of(end.from)) + " to stage " +
                        std::to_string(index_of(end.to)) + ": expected it to go to " +
                        (end.pass == Pass::Forward ? "a later" : "an earlier") + " stage");
      return false;
    }
    return true;
  }

  void drop_twins(std::vector<End>& ends) {
    const auto same = [](const End& a, const End& b) { return a.key() == b.key(); };
    for (std::size_t i = 1; i < ends.size(); ++i) {
      if (same(ends[i - 1], ends[i])) {
        findings_.add("duplicate-message", ends[i].task,
                      "is there twice: expected one message per tensor and destination stage");
      }
    }
    ends.erase(std::unique(ends.begin(), ends.end(), same), ends.end());
  }

  void pair_up() {
    partner_.assign(schedule_.tasks.size(), kNone);
    auto send = sends_.begin();
    auto receive = receives_.begin();
    while (send != sends_.end() || receive != receives_.end()) {
      const bool send_alone =
          receive == receives_.end() || (send != sends_.end() && send->key() < receive->key());
      if (send_alone) {
        lone("send-without-receive", *send, "receive");
        check_producer(*send);
        ++send;
      } else if (send == sends_.end() || receive->key() < send->key()) {
        lone("receive-without-send", *receive, "send");
        check_consumer(*receive);
        ++receive;
      } else {
        partner_[index_of(send->task)] = receive->task;
        check_pair(*send, *receive);
        check_producer(*send);
        check_consumer(*receive);
        ++send;
        ++receive;
      }
    }
  }

  void lone(std::string_view code, const End& end, std::string_view other) {
    Task wanted;
    if (other == "send") {
      wanted.payload = Send{kUnknownBytes, end.micro_batch, end.to, end.pass};
      wanted.stage = end.from;
    } else {
      wanted.payload = Receive{kUnknownBytes, end.micro_batch, end.from, end.pass};
      wanted.stage = end.to;
    }
    findings_.add(code, end.task,
                  "has no matching " + std::string(other) + ": expected " + to_text(wanted));
  }

  void check_pair(const End& send, const End& receive) {
    const Bytes sent = std::get<Send>(schedule_.task(send.task).payload).bytes;
    const Bytes received = std::get<Receive>(schedule_.task(receive.task).payload).bytes;
    if (sent != kUnknownBytes && received != kUnknownBytes && sent != received) {
      findings_.add("bytes-mismatch", send.task,
                    "sends " + std::to_string(sent) + " bytes and " + text(receive.task) +
                        " expects " + std::to_string(received) + ": expected equal sizes");
    }
    if (std::find(index_.begin_in(receive.task), index_.end_in(receive.task), send.task) ==
        index_.end_in(receive.task)) {
      findings_.add("missing-dependency", receive.task,
                    "does not wait for " + text(send.task) + ": expected an edge from its send");
    }
  }

  void check_producer(const End& send) {
    const std::uint64_t j = index_of(send.micro_batch);
    const auto producer = send.pass == Pass::Forward ? grid_.find(TaskKind::Forward, send.from, j)
                                                     : grid_.gradient(send.from, j);
    if (!producer) {
      findings_.add("missing-dependency", send.task,
                    "sends a gradient that its stage never computes: expected a backward of it");
    } else if (!index_.waits_directly(send.task, *producer)) {
      findings_.add("missing-dependency", send.task,
                    "does not wait for " + text(*producer) +
                        ": expected an edge from the task that computes what it sends");
    }
  }

  void check_consumer(const End& receive) {
    const std::uint64_t j = index_of(receive.micro_batch);
    const auto consumer = receive.pass == Pass::Forward
                              ? grid_.find(TaskKind::Forward, receive.to, j)
                              : grid_.gradient(receive.to, j);
    if (!consumer) {
      findings_.add("missing-dependency", receive.task,
                    "receives a gradient that its stage never uses: expected a backward of it");
    } else if (!index_.waits_directly(*consumer, receive.task)) {
      findings_.add("missing-dependency", *consumer,
                    "does not wait for " + text(receive.task) +
                        ": expected an edge from the message that brings its input");
    }
  }

  /// Receives stand in the order of their sends.
  void check_message_order() {
    for (const Lane& lane : schedule_.lanes) {
      if (lane.kind != LaneKind::Send) {
        continue;
      }
      TaskId last = kNone;
      for (const TaskId send : lane.order) {
        const TaskId receive = partner_[index_of(send)];
        if (receive == kNone) {
          continue;
        }
        if (last != kNone && schedule_.task(last).lane == schedule_.task(receive).lane &&
            index_.position[index_of(receive)] < index_.position[index_of(last)]) {
          findings_.add("message-order", receive,
                        "is received before " + text(last) +
                            " and sent after it: expected one order on both ends");
        }
        last = receive;
      }
    }
  }

  /// Activations and gradients come in pairs.
  void check_gradients() {
    if (!grid_.trains) {
      return;
    }
    const auto has = [](const std::vector<End>& ends, const auto& key) {
      const auto place =
          std::lower_bound(ends.begin(), ends.end(), key,
                           [](const End& end, const auto& k) { return end.key() < k; });
      return place != ends.end() && place->key() == key;
    };
    for (const End& send : sends_) {
      const Pass back = send.pass == Pass::Forward ? Pass::Backward : Pass::Forward;
      const auto wanted_key = std::tuple(back, send.to, send.from, send.micro_batch);
      if (!has(sends_, wanted_key) && !has(receives_, wanted_key)) {
        fed(back, send.from, send.micro_batch) = true;
        const Task wanted{Send{kUnknownBytes, send.micro_batch, send.from, back}, {}, send.to};
        findings_.add(
            "missing-gradient", send.task,
            send.pass == Pass::Forward
                ? "brings no gradient back: expected " + to_text(wanted)
                : "is the gradient of nothing that was sent: expected " + to_text(wanted));
      }
    }
  }

  /// Every stage but the first gets input, every stage but the last gets a gradient.
  void check_inputs() {
    const auto stages = static_cast<std::uint16_t>(schedule_.stages.size());
    for (std::uint16_t k = 0; k < stages; ++k) {
      for (std::uint32_t j = 0; j < grid_.micro_batches; ++j) {
        const StageId stage{k};
        if (k > 0 && !fed(Pass::Forward, stage, MicroBatch{j})) {
          const TaskId forward = *grid_.find(TaskKind::Forward, stage, j);
          if (!any_feeds(forward, 0, k, j, Pass::Forward)) {
            findings_.add("missing-dependency", forward,
                          "gets no input: expected a message from an earlier stage, or one on its "
                          "own device before it");
          }
        }
        if (grid_.trains && k + 1 < stages && !fed(Pass::Backward, stage, MicroBatch{j})) {
          const TaskId backward = *grid_.gradient(stage, j);
          if (!any_feeds(backward, k + 1, stages, j, Pass::Backward)) {
            findings_.add("missing-dependency", backward,
                          "gets no gradient: expected a message from a later stage, or one on its "
                          "own device before it");
          }
        }
      }
    }
  }

  /// Some stage of [first, end) on the device of `consumer` has run the same pass before it.
  bool any_feeds(TaskId consumer, int first, int end, std::uint32_t j, Pass pass) {
    for (int p = first; p < end; ++p) {
      const StageId stage{static_cast<std::uint16_t>(p)};
      const auto producer = pass == Pass::Forward ? grid_.find(TaskKind::Forward, stage, j)
                                                  : grid_.gradient(stage, j);
      if (device_of(stage) == device_of(schedule_.task(consumer).stage) && producer &&
          index_.waits_directly(consumer, *producer)) {
        return true;
      }
    }
    return false;
  }

  static constexpr TaskId kNone{0xffffffffU};

  const Schedule& schedule_;
  const Index& index_;
  const Grid& grid_;
  Findings& findings_;
  std::vector<End> sends_;
  std::vector<End> receives_;
  std::vector<TaskId> partner_;  ///< by TaskId of a send: its receive
  std::vector<bool> fed_[2];     ///< by Pass, then stage and micro-batch
};

}  // namespace

void check_communication(const Index& index, const Grid& grid, Findings& findings) {
  Communication(index, grid, findings).check();
}

}  // namespace xpipe::ir::validation
