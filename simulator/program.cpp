#include "simulator/program.h"

#include <unordered_map>
#include <variant>

#include "ir/status.h"
#include "scheduler/cost_model.h"

namespace xpipe::simulator {

using ir::index_of;
using ir::LaneId;
using ir::TaskId;
using std::size_t;
using std::uint32_t;

namespace {

/// Set in a task's place: it is a receive that follows the send of this step.
constexpr uint32_t kFollows = 0x80000000U;

}  // namespace

/// Lays the steps out lane by lane, then hangs the edges on them.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Program& program)
      : program_(program),
        schedule_(*program.schedule_),
        place_(schedule_.tasks.size()),
        class_of_kind_(schedule_.stages.size() * ir::kTaskKinds, Class{}) {}

  void build() {
    find_followers();
    do {
      lay_out();
    } while (!add_edges());
    program_.waits_.shrink_to_fit();
  }

 private:
  struct Class {
    uint32_t lane_and_one = 0;  ///< of the lane that it belongs to, plus one
    uint32_t id = 0;
  };

  /// Which receive lanes take what one send lane sends, message by message in its order.
  void find_followers() {
    program_.lanes_.resize(schedule_.lanes.size());
    std::unordered_map<uint32_t, uint32_t> sender;  // by (from, to)
    const auto key = [](ir::DeviceId from, ir::DeviceId to) {
      return (uint32_t{index_of(from)} << 16U) | index_of(to);
    };
    for (uint32_t l = 0; l < schedule_.lanes.size(); ++l) {
      const ir::Lane& lane = schedule_.lanes[l];
      if (lane.kind == ir::LaneKind::Send) {
        sender.emplace(key(lane.device, lane.peer), l);
      }
    }
    for (uint32_t l = 0; l < schedule_.lanes.size(); ++l) {
      const ir::Lane& lane = schedule_.lanes[l];
      const auto found = lane.kind == ir::LaneKind::Receive
                             ? sender.find(key(lane.peer, lane.device))
                             : sender.end();
      if (found != sender.end() && takes_all(schedule_.lanes[found->second].order, lane.order)) {
        program_.lanes_[l].follows = LaneId{found->second};
      }
    }
  }

  [[nodiscard]] bool takes_all(const std::vector<TaskId>& sends,
                               const std::vector<TaskId>& receives) const {
    bool all = sends.size() == receives.size();
    for (size_t i = 0; all && i < sends.size(); ++i) {
      all = scheduler::is_transfer(schedule_.task(sends[i]), schedule_.task(receives[i]));
    }
    return all;
  }

  void lay_out() {
    uint32_t next = kStart + 1;
    for (size_t l = 0; l < schedule_.lanes.size(); ++l) {
      StepRange& range = program_.lanes_[l];
      range.begin = next;
      next += range.follows ? 0 : static_cast<uint32_t>(schedule_.lanes[l].order.size());
      range.end = next;
    }
    XPIPE_CHECK(next < kSeveral) << next << " steps";
    program_.classes_.clear();
    program_.waits_.clear();
    program_.steps_.assign(next, Step{});
    class_of_kind_.assign(class_of_kind_.size(), Class{});
    program_.classes_.reserve(schedule_.lanes.size() * 4);
    for (uint32_t l = 0; l < schedule_.lanes.size(); ++l) {
      const StepRange& range = program_.lanes_[l];
      const std::vector<TaskId>& order = schedule_.lanes[l].order;
      if (range.follows) {
        const uint32_t first = kFollows | program_.lanes_[index_of(*range.follows)].begin;
        for (uint32_t i = 0; i < order.size(); ++i) {
          place_[index_of(order[i])] = first + i;
        }
      } else {
        lay_out_lane(l, range.begin, order);
      }
    }
  }

  void lay_out_lane(uint32_t l, uint32_t begin, const std::vector<TaskId>& order) {
    by_bytes_.clear();
    ir::Bytes last_bytes = 0;
    uint32_t last_class = 0;
    bool has_last = false;
    for (uint32_t i = 0; i < order.size(); ++i) {
      const uint32_t id = index_of(order[i]);
      place_[id] = begin + i;
      const ir::Task& task = schedule_.tasks[id];
      Step& step = program_.steps_[begin + i];
      if (const auto* send = std::get_if<ir::Send>(&task.payload)) {
        if (!has_last || send->bytes != last_bytes) {
          const auto [entry, is_new] = by_bytes_.try_emplace(send->bytes, 0);
          if (is_new) {
            entry->second = new_class(order[i]);
          }
          has_last = true;
          last_bytes = send->bytes;
          last_class = entry->second;
        }
        step.cost = last_class;
        continue;
      }
      Class& of_kind =
          class_of_kind_[index_of(task.stage) * ir::kTaskKinds + static_cast<size_t>(task.kind())];
      if (of_kind.lane_and_one != l + 1) {
        of_kind = {l + 1, new_class(order[i])};
      }
      step.cost = of_kind.id;
    }
  }

  uint32_t new_class(TaskId example) {
    program_.classes_.push_back(example);
    return static_cast<uint32_t>(program_.classes_.size() - 1);
  }

  /// False when a lane that was to follow another waits for more than that, or for less: it no
  /// longer follows, and the steps must be laid out again.
  bool add_edges() {
    size_t expected = 0;
    bool some_receive = false;  // among the steps
    for (size_t l = 0; l < program_.lanes_.size(); ++l) {
      const ir::Lane& lane = schedule_.lanes[l];
      const bool follows = program_.lanes_[l].follows.has_value();
      expected += follows ? lane.order.size() : 0;
      some_receive |= lane.kind == ir::LaneKind::Receive && !follows;
    }
    size_t followed = 0;
    for (const ir::Edge& edge : schedule_.edges) {
      const uint32_t to = place_[index_of(edge.to)];
      const uint32_t from = place_[index_of(edge.from)];
      if ((to & kFollows) != 0) {
        if (to != (from | kFollows) || (from & kFollows) != 0) {
          return stop_following();
        }
        ++followed;
      } else if ((from & kFollows) != 0) {
        add_wait(to, from & ~kFollows, delay_of(sender_of(edge.from)));
      } else {
        add_wait(to, from,
                 some_receive && is_transfer(edge) ? delay_of(schedule_.task(edge.from).lane) : 0);
      }
    }
    return followed == expected || stop_following();
  }

  /// Every lane whose receives wait for anything but their sends gets steps of its own.
  bool stop_following() {
    std::vector<uint32_t> matches(program_.lanes_.size(), 0);
    std::vector<uint32_t> edges(program_.lanes_.size(), 0);
    for (const ir::Edge& edge : schedule_.edges) {
      const uint32_t to = place_[index_of(edge.to)];
      if ((to & kFollows) != 0) {
        const uint32_t lane = index_of(schedule_.task(edge.to).lane);
        ++edges[lane];
        matches[lane] += to == (place_[index_of(edge.from)] | kFollows) ? 1 : 0;
      }
    }
    for (size_t l = 0; l < program_.lanes_.size(); ++l) {
      const size_t receives = schedule_.lanes[l].order.size();
      if (matches[l] != receives || edges[l] != receives) {
        program_.lanes_[l].follows.reset();
      }
    }
    return false;
  }

  [[nodiscard]] LaneId sender_of(TaskId receive) const {
    return *program_.lanes_[index_of(schedule_.task(receive).lane)].follows;
  }

  static uint32_t delay_of(LaneId lane) { return index_of(lane) + 1; }

  [[nodiscard]] bool is_transfer(const ir::Edge& edge) const {
    return scheduler::is_transfer(schedule_.task(edge.from), schedule_.task(edge.to));
  }

  void add_wait(uint32_t step, uint32_t after, uint32_t delay) {
    Step& s = program_.steps_[step];
    if (s.after == kStart) {
      s.after = after;
      s.delay = delay;
      return;
    }
    std::vector<Wait>& waits = program_.waits_;
    if ((s.after & kSeveral) == 0) {
      waits.push_back({s.after, s.delay, kLastWait});
      s.after = kSeveral | static_cast<uint32_t>(waits.size() - 1);
      s.delay = 0;
    }
    waits.push_back({after, delay, s.after & ~kSeveral});
    s.after = kSeveral | static_cast<uint32_t>(waits.size() - 1);
  }

  Program& program_;
  const ir::Schedule& schedule_;
  std::vector<uint32_t> place_;       ///< by TaskId: its step, or kFollows and the send's
  std::vector<Class> class_of_kind_;  ///< by stage and kind, of the lane at hand
  std::unordered_map<ir::Bytes, uint32_t> by_bytes_;  ///< of the lane at hand
};

Program::Program(const ir::Schedule& schedule) : schedule_(&schedule) {
  ProgramBuilder(*this).build();
}

size_t Program::heap_bytes() const {
  return steps_.capacity() * sizeof(Step) + waits_.capacity() * sizeof(Wait) +
         lanes_.capacity() * sizeof(StepRange) + classes_.capacity() * sizeof(TaskId);
}

}  // namespace xpipe::simulator
