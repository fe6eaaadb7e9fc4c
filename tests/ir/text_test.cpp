#include "ir/text.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;
using tests::kExchanges;
using tests::kOneStage;
using tests::kReplicas;
using tests::kTwoLanes;
using tests::kTwoStages;
using tests::parsed;

std::vector<std::string> faults(std::string_view text) {
  const Result<Schedule> schedule = schedule_from_text(text, "f.tasks");
  std::vector<std::string> out;
  if (!schedule.ok()) {
    CHECK(schedule.error().kind == ErrorKind::BadInput);
    for (const Diagnostic& d : schedule.error().diagnostics) {
      out.push_back(d.where + ": " + d.message);
    }
  }
  return out;
}

bool any_has(const std::vector<std::string>& lines, std::string_view part) {
  return std::any_of(lines.begin(), lines.end(), [part](const std::string& line) {
    return line.find(part) != std::string::npos;
  });
}

/// Any task at all, ids far out of range included. Bytes are what they can be: unknown or >= 0.
Task any_task(LaneId lane) {
  const auto u16 = [] { return *rc::gen::arbitrary<std::uint16_t>(); };
  const auto u32 = [] { return *rc::gen::arbitrary<std::uint32_t>(); };
  const auto bytes = [] {
    return *rc::gen::oneOf(rc::gen::just(kUnknownBytes), rc::gen::nonNegative<Bytes>());
  };
  const auto pass = [] { return *rc::gen::element(Pass::Forward, Pass::Backward); };
  const auto read = [&] { return WeightRead{u32(), SlotId{u16()}, u16()}; };
  Task task;
  task.lane = lane;
  // Small stages too, so that usual peers and twins turn up.
  task.stage = StageId{
      *rc::gen::oneOf(rc::gen::inRange<std::uint16_t>(0, 3), rc::gen::arbitrary<std::uint16_t>())};
  const auto near = static_cast<std::uint16_t>(index_of(task.stage) + *rc::gen::inRange(-2, 3));
  const MicroBatch j{
      *rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 2), rc::gen::arbitrary<std::uint32_t>())};
  const MiniBatch i{index_of(j)};
  switch (*rc::gen::inRange(0, 14)) {
    case 0:
      task.payload = Forward{j, read()};
      break;
    case 1:
      task.payload = Backward{j, read()};
      break;
    case 2:
      task.payload = BackwardInput{j, read()};
      break;
    case 3:
      task.payload = BackwardWeight{j, read()};
      break;
    case 4:
      task.payload = Recompute{j, read()};
      break;
    case 5:
      task.payload = Predict{i, u32(), SlotId{u16()}, SlotId{u16()}, u16(), pass()};
      break;
    case 6:
      task.payload = Step{i, u32()};
      break;
    case 7:
      task.payload = Stash{i, u32(), SlotId{u16()}, SlotId{u16()}};
      break;
    case 8:
      task.payload = Release{i, SlotId{u16()}};
      break;
    case 9:
      task.payload = Send{bytes(), j, StageId{near}, pass()};
      break;
    case 10:
      task.payload = Receive{bytes(), j, StageId{near}, pass()};
      break;
    case 11:
      task.payload = SumTied{i, StageId{near}};
      break;
    case 12:
      task.payload = ClipNorm{i};
      break;
    default:
      task.payload = AllReduce{i};
  }
  return task;
}

/// A schedule that need not be legal: only that every task stands in one lane and edges are sorted.
Schedule any_schedule() {
  Schedule s;
  s.policy = *rc::gen::string<std::string>();
  const auto options = *rc::gen::inRange(0, 3);
  for (int i = 0; i < options; ++i) {
    s.options.emplace_back(std::to_string(i) + *rc::gen::string<std::string>(),
                           *rc::gen::string<std::string>());
  }
  s.micro_batches = *rc::gen::arbitrary<std::uint32_t>();
  s.mini_batches = *rc::gen::arbitrary<std::uint32_t>();
  s.devices = *rc::gen::arbitrary<std::uint32_t>();
  const auto stages = *rc::gen::inRange(0, 3);
  for (int k = 0; k < stages; ++k) {
    s.stages.push_back(
        {DeviceId{*rc::gen::arbitrary<std::uint16_t>()}, *rc::gen::arbitrary<std::uint16_t>()});
  }
  const auto lanes = *rc::gen::inRange<std::uint32_t>(1, 4);
  for (std::uint32_t l = 0; l < lanes; ++l) {
    Lane lane;
    lane.kind = *rc::gen::element(LaneKind::Compute, LaneKind::Send, LaneKind::Receive);
    lane.device = DeviceId{*rc::gen::arbitrary<std::uint16_t>()};
    lane.peer = lane.kind == LaneKind::Compute ? lane.device
                                               : DeviceId{*rc::gen::arbitrary<std::uint16_t>()};
    s.lanes.push_back(lane);
  }
  const auto tasks = *rc::gen::inRange<std::uint32_t>(0, 8);
  for (std::uint32_t t = 0; t < tasks; ++t) {
    const LaneId lane{*rc::gen::inRange<std::uint32_t>(0, lanes)};
    // Now and then the same task again.
    Task task = t > 0 && *rc::gen::inRange(0, 4) == 0 ? s.tasks.back() : any_task(lane);
    task.lane = lane;
    s.tasks.push_back(task);
    std::vector<TaskId>& order = s.lanes[index_of(lane)].order;
    const auto place = *rc::gen::inRange<std::size_t>(0, order.size() + 1);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), TaskId{t});
  }
  std::set<Edge> edges;
  const auto wanted = tasks == 0 ? 0 : *rc::gen::inRange(0, 12);
  for (int e = 0; e < wanted; ++e) {
    edges.insert({TaskId{*rc::gen::inRange<std::uint32_t>(0, tasks)},
                  TaskId{*rc::gen::inRange<std::uint32_t>(0, tasks)}});
  }
  s.edges.assign(edges.begin(), edges.end());
  return s;
}

}  // namespace

TEST_CASE("text: every kind of task has the token of design.md 10") {
  const auto text = [](Payload payload) { return to_text(Task{payload, LaneId{0}, StageId{1}}); };
  const WeightRead read{2, SlotId{1}, 1};
  CHECK_EQ(text(Forward{MicroBatch{5}, read}), "1F5[s1:v2+1]");
  CHECK_EQ(text(Backward{MicroBatch{5}, {3, SlotId{0}, 0}}), "1B5[s0:v3]");
  CHECK_EQ(text(BackwardInput{MicroBatch{5}, read}), "1I5[s1:v2+1]");
  CHECK_EQ(text(BackwardWeight{MicroBatch{5}, read}), "1W5[s1:v2+1]");
  CHECK_EQ(text(Recompute{MicroBatch{5}, read}), "1RECOMPUTE5[s1:v2+1]");
  CHECK_EQ(text(Predict{MiniBatch{2}, 2, SlotId{0}, SlotId{1}, 1, Pass::Forward}),
           "1PREDICT_F2[s0:v2>s1+1]");
  CHECK_EQ(text(Predict{MiniBatch{2}, 2, SlotId{0}, SlotId{1}, 3, Pass::Backward}),
           "1PREDICT_B2[s0:v2>s1+3]");
  CHECK_EQ(text(Step{MiniBatch{2}, 2}), "1STEP2[v2]");
  CHECK_EQ(text(Stash{MiniBatch{2}, 2, SlotId{0}, SlotId{3}}), "1STASH2[s0:v2>s3]");
  CHECK_EQ(text(Release{MiniBatch{2}, SlotId{3}}), "1RELEASE2[s3]");
  CHECK_EQ(text(Send{kUnknownBytes, MicroBatch{0}, StageId{2}, Pass::Forward}), "1SEND_F0");
  CHECK_EQ(text(Send{kUnknownBytes, MicroBatch{0}, StageId{3}, Pass::Forward}), "1SEND_F0[>3]");
  CHECK_EQ(text(Send{4096, MicroBatch{0}, StageId{0}, Pass::Backward}), "1SEND_B0[4096B]");
  CHECK_EQ(text(Receive{4096, MicroBatch{0}, StageId{3}, Pass::Forward}), "1RECV_F0[<3:4096B]");
  CHECK_EQ(text(Receive{kUnknownBytes, MicroBatch{0}, StageId{2}, Pass::Backward}), "1RECV_B0");
  CHECK_EQ(text(AllReduce{MiniBatch{2}}), "1ALLREDUCE2");
  CHECK_EQ(text(SumTied{MiniBatch{2}, StageId{3}}), "1SUMTIED2[3]");
  CHECK_EQ(text(ClipNorm{MiniBatch{2}}), "1CLIP2");
}

TEST_CASE("text: a task read back from its text is the same task") {
  CHECK(rc::check([] {
    const Task task = any_task(LaneId{0});
    const Result<Task> back = task_from_text(to_text(task));
    RC_ASSERT(back.ok());
    RC_ASSERT(back.value() == task);
  }));
}

TEST_CASE("text: what is not exactly a task is refused with its place") {
  struct Case {
    std::string_view token;
    std::string_view says;
  };

  // The first seven are formats.md 2 D.
  for (const Case& c : std::vector<Case>{
           {"0F0xyz", "character 4"},
           {"F0", "character 1"},
           {"0F", "character 3"},
           {"-1F0", "character 1"},
           {"(0F0;(1F0;2F0)OVERLAP_F_B)OVERLAP_F_B", "character 1"},
           {"0f0", "character 2"},
           {"0F0;0F1", "character 4"},
           {"", "character 1"},
           {"1F0", "does not say which weights it reads"},
           {"1B0", "does not say which weights it reads: expected 1B0[sSLOT:vVERSION]"},
           {"1I0", "does not say which weights it reads"},
           {"1W0", "does not say which weights it reads"},
           {"1RECOMPUTE0", "does not say which weights it reads"},
           {"1F0[s0:v0]x", "expected the end of the task, found 'x'"},
           {" 1F0[s0:v0]", "character 1"},
           {"1F0[s0:v0] ", "found ' '"},
           {"1F0[s0:v0+0]", "distance 0 is not written"},
           {"1F0[v0:s0]", "expected 's'"},
           {"1F0[s0:v]", "expected version in decimal digits, found ']'"},
           {"1F0[s0:v0", "expected ']' after the weights read, found the end"},
           {"01F0[s0:v0]", "leading zero"},
           {"1F+1[s0:v0]", "expected micro-batch in decimal digits"},
           {"65536F0[s0:v0]", "stage 65536 is larger than 65535"},
           {"1F4294967296[s0:v0]", "larger than 4294967295"},
           {"1F0[s0:v0+65536]", "distance 65536 is larger than 65535"},
           {"1STEP0", "expected '['"},
           {"1STASH0[s0:v0]", "expected '>'"},
           {"1PREDICT_F0[s0:v0>s1]", "expected '+'"},
           {"1PREDICT0[s0:v0>s1+1]", "expected a task kind"},
           {"1SEND_F0[]", "expected bytes"},
           {"1SEND_F0[<3]", "expected bytes"},
           {"1SEND_F0[-4B]", "expected bytes"},
           {"1SEND_F0[4]", "expected 'B'"},
           {"1SEND_F0[9223372036854775808B]", "larger than 9223372036854775807"},
           {"0SEND_B0", "stage -1, which cannot be"},
           {"1UNSHARD", "expected a task kind"},
           {"1ALLREDUCE0[s0]", "expected the end of the task"},
       }) {
    CAPTURE(c.token);
    const Result<Task> task = task_from_text(c.token);
    REQUIRE_FALSE(task.ok());
    CAPTURE(task.error().to_string());
    CHECK_EQ(task.error().diagnostics[0].code, "token");
    CHECK(task.error().to_string().find(c.says) != std::string::npos);
  }
}

TEST_CASE("text: a schedule read back from its text is the same schedule, ids included") {
  CHECK(rc::check([] {
    const Schedule schedule = any_schedule();
    const std::string text = schedule_to_text(schedule);
    const Result<Schedule> back = schedule_from_text(text, "f.tasks");
    if (!back.ok()) {
      RC_FAIL(back.error().to_string() + "\n" + text);
    }
    RC_ASSERT(back.value() == schedule);
    RC_ASSERT(schedule_to_text(back.value()) == text);
  }));
}

TEST_CASE("text: what is written is what the header of ir/text.h draws") {
  for (const std::string_view text : {kTwoStages, kOneStage, kTwoLanes, kReplicas, kExchanges}) {
    const std::string written = schedule_to_text(parsed(text));
    CHECK(parsed(written) == parsed(text));
    CHECK(written.find("\nids:") == std::string::npos);
  }
  const std::string written = schedule_to_text(parsed(kTwoStages));
  CHECK_EQ(written.substr(0, written.find("edges:")),
           kTwoStages.substr(0, kTwoStages.find("edges:")));
  CHECK(written.find(" 0F0>0SEND_F0 ") != std::string::npos);
}

TEST_CASE("text: ids out of the order of lanes are written and read") {
  Schedule schedule = parsed(kTwoStages);
  std::reverse(schedule.tasks.begin(), schedule.tasks.end());
  const auto last = static_cast<std::uint32_t>(schedule.tasks.size() - 1);
  for (Lane& lane : schedule.lanes) {
    for (TaskId& id : lane.order) {
      id = TaskId{last - index_of(id)};
    }
  }
  for (Edge& edge : schedule.edges) {
    edge = {TaskId{last - index_of(edge.from)}, TaskId{last - index_of(edge.to)}};
  }
  std::sort(schedule.edges.begin(), schedule.edges.end());
  const std::string text = schedule_to_text(schedule);
  CHECK(text.find("\nids: 17 16 15 14 13\n") != std::string::npos);
  CHECK(parsed(text) == schedule);
}

TEST_CASE("text: CR LF is read as LF, comments and empty lines are skipped") {
  std::string text;
  for (const char c : std::string(kTwoStages)) {
    text += c == '\n' ? "\r\n" : std::string(1, c);
  }
  CHECK(parsed(text) == parsed(kTwoStages));
  CHECK(parsed(edited(kTwoStages, {{"devices 2", "# two of them\n\ndevices 2"}})) ==
        parsed(kTwoStages));
  std::string no_newline(kTwoStages);
  no_newline.pop_back();
  CHECK(parsed(no_newline) == parsed(kTwoStages));
}

TEST_CASE("text: every fault of a file comes at once, with line and column") {
  const std::vector<std::string> found =
      faults(edited(kTwoStages, {{"micro-batches 2", "micro-batches two"},
                                 {"0F1[s0:v0]", "0F1"},
                                 {"stage 1 device 1", "stage 2 device 1"},
                                 {"receive 0>1:", "receive 0:"},
                                 {"policy hand\n", ""}}));
  CHECK_EQ(found.size(), 5);
  CHECK(any_has(found, "f.tasks: line 2, column 15: expected micro-batches from 0"));
  CHECK(any_has(found, "f.tasks: line 7, column 23: \"0F1\", character 4: does not say"));
  CHECK(any_has(found, "line 6, column 7: stages are listed in order: expected stage 1, found 2"));
  CHECK(any_has(found, "line 10, column 1: expected \"receive FROM>TO: task task ...\""));
  CHECK(any_has(found, "the file ends without a line \"policy ...\""));
}

TEST_CASE("text: lines that do not belong are refused") {
  struct Case {
    std::string from;
    std::string to;
    std::string_view says;
  };

  for (const Case& c : std::vector<Case>{
           {"# xpipe.schedule 1", "# xpipe.schedule 2",
            "line 1, column 1: expected \"# xpipe.schedule 1\""},
           {"# xpipe.schedule 1", "\xEF\xBB\xBF# xpipe.schedule 1", "byte order mark"},
           {"devices 2", "devices 2\ndevices 2", "\"devices\" is given twice"},
           {"devices 2", "devices 02", "found \"02\""},
           {"devices 2", "devices -2", "found \"-2\""},
           {"devices 2", "devices 4294967296", "from 0 to 4294967295"},
           {"devices 2", "device 2", "found \"device\""},
           {"devices 2", "devices 2\noption a", "expected name=value"},
           {"devices 2", "devices 2\noption a=1\noption a=2", "option a is given twice"},
           {"policy hand", "policy ha\\nd", "expected \\xHH"},
           {"edges: 0F0>0SEND_F0", "edges: 0F7>0SEND_F0",
            "line 14, column 8: \"0F7\": no lane holds"},
           {"edges: 0F0>0SEND_F0", "edges: 0F0", "expected FROM>TO, found \"0F0\""},
           {"edges: 0F0>0SEND_F0", "edges: 0F0>0SEND_F9", "line 14, column 12: \"0SEND_F9\""},
           {"0F0[s0:v0]", "0F0[s0:v0] 0F0[s0:v1]",
            "several tasks have this name: write one of them in full, such as 0F0[s0:v0]"},
           {"0F0[s0:v0]", "0F0[s0:v0] 0F0[s0:v0]", "write one of them in full"},
           {"1STEP0[v0]\n", "1STEP0[v0]\nids: 1 2\n", "expected 5 ids"},
           {"1STEP0[v0]\n", "1STEP0[v0]\nids: 0-4\n", "give ids for all lanes or for none"},
           {"1STEP0[v0]\n", "1STEP0[v0]\nids: 0-4000000000\n", "that does not fit"},
           {"devices 2", "ids: 1\ndevices 2", "after the lane it is for"},
           {"policy hand", "policy h\xFFnd", "line 2, column 9: invalid UTF-8"},
       }) {
    CAPTURE(c.to);
    const std::vector<std::string> found = faults(edited(kTwoStages, {{c.from, c.to}}));
    CAPTURE(found.empty() ? "nothing" : found[0]);
    CHECK(any_has(found, c.says));
  }
  CHECK(any_has(faults(""), "the file is empty"));
}

}  // namespace xpipe::ir
