#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/task_names.h"
#include "ir/text.h"
#include "ir/validate_ends.h"
#include "ir/validate_levels.h"

namespace xpipe::ir::validation {

namespace {

std::string_view word(Pass pass) {
  return pass == Pass::Forward ? "forward" : "backward";
}

class Communication {
 public:
  Communication(const Index& index, const Grid& grid, Findings& findings)
      : schedule_(index.schedule), index_(index), grid_(grid), findings_(findings) {}

  void check() {
    collect();
    sort_ends();
    pair_up();
    check_message_order();
    check_gradients();
    check_inputs();
  }

 private:
  [[nodiscard]] std::string text(TaskId id) const { return to_text(schedule_.task(id)); }

  /// Where `stage` works on micro-batch `j`.
  [[nodiscard]] DeviceId device_of(StageId stage, MicroBatch j) const {
    const StageInfo& info = schedule_.stage(stage);
    if (!info.is_replicated()) {
      return info.device();
    }
    const TaskId forward = *grid_.find(TaskKind::Forward, stage, index_of(j));
    return schedule_.lane(index_.place[index_of(forward)].lane).device;
  }

  void collect() {
    const std::size_t cells = schedule_.stages.size() * grid_.micro_batches;
    fed_[0].assign(cells, false);
    fed_[1].assign(cells, false);
    for (std::uint32_t i = 0; i < schedule_.tasks.size(); ++i) {
      if (index_.kind[i] != TaskKind::Send && index_.kind[i] != TaskKind::Receive) {
        continue;
      }
      const Task& task = schedule_.tasks[i];
      if (const Send* send = std::get_if<Send>(&task.payload)) {
        const Route route{send->pass, task.stage, send->peer};
        if (check_link(TaskId{i}, route, send->peer, send->micro_batch)) {
          sends_.add({number_of(route), send->micro_batch, TaskId{i}});
          fed(route.pass, route.to, send->micro_batch) = true;
        }
      } else if (const Receive* receive = std::get_if<Receive>(&task.payload)) {
        const Route route{receive->pass, receive->peer, task.stage};
        if (check_link(TaskId{i}, route, receive->peer, receive->micro_batch)) {
          receives_.add({number_of(route), receive->micro_batch, TaskId{i}});
          fed(route.pass, route.to, receive->micro_batch) = true;
        }
      }
    }
  }

  /// Numbers count routes as they are met.
  std::uint32_t number_of(const Route& route) {
    if (routes_.empty() || routes_[last_route_] != route) {
      const auto [place, fresh] =
          numbers_.try_emplace(route, static_cast<std::uint32_t>(routes_.size()));
      if (fresh) {
        routes_.push_back(route);
      }
      last_route_ = place->second;
    }
    return last_route_;
  }

  /// From here on, routes are numbered in their order.
  void sort_ends() {
    std::vector<std::uint32_t> rank(routes_.size());
    std::uint32_t next = 0;
    for (auto& [route, number] : numbers_) {
      rank[number] = next;
      routes_[next] = route;
      number = next++;
    }
    for (Ends* ends : {&sends_, &receives_}) {
      for (const TaskId twin : ends->sort(rank)) {
        findings_.add("duplicate-message", twin,
                      "is there twice: expected one message per tensor and destination stage");
      }
    }
  }

  /// Some message brings the input of `pass`, or its loss has been told already.
  std::vector<bool>::reference fed(Pass pass, StageId stage, MicroBatch j) {
    return fed_[static_cast<int>(pass)][index_of(stage) * grid_.micro_batches + index_of(j)];
  }

  bool check_link(TaskId id, const Route& route, StageId peer, MicroBatch j) {
    const Task& task = schedule_.task(id);
    const Lane& lane = schedule_.lane(task.lane);
    const DeviceId own = device_of(task.stage, j);
    const DeviceId other = device_of(peer, j);
    if (own == other) {
      findings_.add("send-to-self", id,
                    "has both ends on device " + std::to_string(index_of(own)) +
                        ": expected no message, as the device's order is enough");
      return false;
    }
    if (lane.device != own || lane.peer != other) {
      const Lane wanted{lane.kind, own, other, {}};
      findings_.add("wrong-link", id,
                    "stands in lane \"" + lane_name(lane) + "\": expected lane \"" +
                        lane_name(wanted) + "\", between the devices of its stages");
    }
    if ((route.pass == Pass::Forward) != (route.from < route.to)) {
      findings_.add("message-direction", id,
                    "takes a " + std::string(word(route.pass)) + " from stage " +
                        std::to_string(index_of(route.from)) + " to stage " +
                        std::to_string(index_of(route.to)) + ": expected it to go to " +
                        (route.pass == Pass::Forward ? "a later" : "an earlier") + " stage");
      return false;
    }
    return true;
  }

  void pair_up() {
    partner_.assign(schedule_.tasks.size(), kNone);
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      pair_up(routes_[r], sends_.of(r), receives_.of(r));
    }
  }

  void pair_up(const Route& route, std::span<const End> sends, std::span<const End> receives) {
    auto send = sends.begin();
    auto receive = receives.begin();
    while (send != sends.end() || receive != receives.end()) {
      const bool send_alone = receive == receives.end() ||
                              (send != sends.end() && send->micro_batch < receive->micro_batch);
      if (send_alone) {
        lone("send-without-receive", send->task, "receive",
             {Receive{kUnknownBytes, send->micro_batch, route.from, route.pass}, {}, route.to});
        check_producer(route, *send);
        ++send;
      } else if (send == sends.end() || receive->micro_batch < send->micro_batch) {
        lone("receive-without-send", receive->task, "send",
             {Send{kUnknownBytes, receive->micro_batch, route.to, route.pass}, {}, route.from});
        check_consumer(route, *receive);
        ++receive;
      } else {
        partner_[index_of(send->task)] = receive->task;
        check_pair(send->task, receive->task);
        check_producer(route, *send);
        check_consumer(route, *receive);
        ++send;
        ++receive;
      }
    }
  }

  void lone(std::string_view code, TaskId task, std::string_view other, const Task& wanted) {
    findings_.add(code, task,
                  "has no matching " + std::string(other) + ": expected " + to_text(wanted));
  }

  void check_pair(TaskId send, TaskId receive) {
    const Bytes sent = std::get<Send>(schedule_.task(send).payload).bytes;
    const Bytes received = std::get<Receive>(schedule_.task(receive).payload).bytes;
    if (sent != kUnknownBytes && received != kUnknownBytes && sent != received) {
      findings_.add("bytes-mismatch", send,
                    "sends " + std::to_string(sent) + " bytes and " + text(receive) + " expects " +
                        std::to_string(received) + ": expected equal sizes");
    }
    if (!index_.has_edge(send, receive)) {
      findings_.add("missing-dependency", receive,
                    "does not wait for " + text(send) + ": expected an edge from its send");
    }
  }

  void check_producer(const Route& route, const End& send) {
    const std::uint64_t j = index_of(send.micro_batch);
    const auto producer = route.pass == Pass::Forward ? grid_.find(TaskKind::Forward, route.from, j)
                                                      : grid_.gradient(route.from, j);
    if (!producer) {
      findings_.add("missing-dependency", send.task,
                    "sends a gradient that its stage never computes: expected a backward of it");
    } else if (!index_.waits_directly(send.task, *producer)) {
      findings_.add("missing-dependency", send.task,
                    "does not wait for " + text(*producer) +
                        ": expected an edge from the task that computes what it sends");
    }
  }

  void check_consumer(const Route& route, const End& receive) {
    const std::uint64_t j = index_of(receive.micro_batch);
    const auto consumer = route.pass == Pass::Forward ? grid_.find(TaskKind::Forward, route.to, j)
                                                      : grid_.gradient(route.to, j);
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
        const Place& place = index_.place[index_of(receive)];
        if (last != kNone && index_.place[index_of(last)].lane == place.lane &&
            place.position < index_.place[index_of(last)].position) {
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
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      const Route& route = routes_[r];
      const Route back{route.pass == Pass::Forward ? Pass::Backward : Pass::Forward, route.to,
                       route.from};
      const auto number = numbers_.find(back);
      std::span<const End> sends;
      std::span<const End> receives;
      if (number != numbers_.end()) {
        sends = sends_.of(number->second);
        receives = receives_.of(number->second);
      }
      const auto next_is = [](std::span<const End>& ends, MicroBatch j) {
        while (!ends.empty() && ends.front().micro_batch < j) {
          ends = ends.subspan(1);
        }
        return !ends.empty() && ends.front().micro_batch == j;
      };
      for (const End& send : sends_.of(r)) {
        if (!next_is(sends, send.micro_batch) && !next_is(receives, send.micro_batch)) {
          missing_gradient(back, send);
        }
      }
    }
  }

  void missing_gradient(const Route& back, const End& send) {
    fed(back.pass, back.to, send.micro_batch) = true;
    const Task wanted{Send{kUnknownBytes, send.micro_batch, back.to, back.pass}, {}, back.from};
    findings_.add("missing-gradient", send.task,
                  back.pass == Pass::Backward
                      ? "brings no gradient back: expected " + to_text(wanted)
                      : "is the gradient of nothing that was sent: expected " + to_text(wanted));
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
      if (producer && index_.waits_directly(consumer, *producer) &&
          device_of(stage, MicroBatch{j}) ==
              device_of(schedule_.task(consumer).stage, MicroBatch{j})) {
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
  std::vector<Route> routes_;               ///< by number
  std::map<Route, std::uint32_t> numbers_;  ///< the other way round
  std::uint32_t last_route_ = 0;            ///< as many messages follow each other on one route
  Ends sends_;
  Ends receives_;
  std::vector<TaskId> partner_;  ///< by TaskId of a send: its receive
  std::vector<bool> fed_[2];     ///< by Pass, then stage and micro-batch
};

}  // namespace

void check_communication(const Index& index, const Grid& grid, Findings& findings) {
  Communication(index, grid, findings).check();
}

}  // namespace xpipe::ir::validation
