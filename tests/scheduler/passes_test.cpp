// The passes that a command's options ask for: sends that wait, recomputes and placements, as
// drawn, and over a grid of policies and sizes.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ir/schedule_json.h"
#include "ir/text.h"
#include "ir/validate.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace xpipe::scheduler {
namespace {

const PolicyRegistry& all_policies() {
  static const PolicyRegistry policies = [] {
    PolicyRegistry all;
    policies::register_all(all);
    return all;
  }();
  return policies;
}

ir::Result<ir::Schedule> compiled_with(const std::string& policy,
                                       const PlanRequest& request,
                                       const Passes& passes) {
  return compile(*all_policies().find(policy).value(), request, chain_of(request.stages), passes);
}

Layout placed(std::uint32_t stages, const std::vector<std::uint32_t>& placement) {
  return resolve_layout({.stages = stages, .devices = {}, .placement = placement, .replicas = {}})
      .value();
}

std::string lane_of(const ir::Schedule& schedule, std::size_t lane) {
  std::string text;
  for (const ir::TaskId id : schedule.lanes[lane].order) {
    const std::string token = ir::to_text(schedule.task(id));
    text += (text.empty() ? "" : " ") + token.substr(0, token.find('['));
  }
  return text;
}

/// "FROM>TO" of all edges, up to the brackets.
std::set<std::string> edges_of(const ir::Schedule& schedule) {
  const auto name = [&](ir::TaskId id) {
    const std::string text = ir::to_text(schedule.task(id));
    return text.substr(0, text.find('['));
  };
  std::set<std::string> edges;
  for (const ir::Edge& edge : schedule.edges) {
    edges.insert(name(edge.from) + ">" + name(edge.to));
  }
  return edges;
}

std::vector<std::string> added(const ir::Schedule& with, const ir::Schedule& without) {
  const std::set<std::string> all = edges_of(with);
  const std::set<std::string> before = edges_of(without);
  std::vector<std::string> more;
  std::set_difference(all.begin(), all.end(), before.begin(), before.end(),
                      std::back_inserter(more));
  return more;
}

std::size_t transfers(const ir::Schedule& schedule) {
  return static_cast<std::size_t>(
      std::count_if(schedule.tasks.begin(), schedule.tasks.end(),
                    [](const ir::Task& task) { return task.kind() == ir::TaskKind::Send; }));
}

const PlanRequest kTwoByTwo{.stages = 2, .micro_batches = 2, .mini_batches = 1, .options = {}};

TEST_CASE("sends: eager adds nothing") {
  const ir::Schedule plain = compiled_with("gpipe", kTwoByTwo, {}).value();
  CHECK(compiled_with("gpipe", kTwoByTwo, {.sends = Sends::Eager}).value() == plain);
}

TEST_CASE("sends: a rendezvous waits until its receiver has come to the consumer") {
  //  device 0:  0F0 0F1 .... 0B0 0B1     0SEND_F1 waits for 1F0, before 1F1
  //  device 1:      1F0 1F1 1B0 1B1      1SEND_B0 waits for 0F1, before 0B0
  const ir::Schedule plain = compiled_with("gpipe", kTwoByTwo, {}).value();
  const auto waits = compiled_with("gpipe", kTwoByTwo, {.sends = Sends::Rendezvous});
  REQUIRE_MESSAGE(waits.ok(), waits.error().to_string());
  CHECK(added(waits.value(), plain) ==
        std::vector<std::string>{"0B0>1SEND_B1", "0F1>1SEND_B0", "1F0>0SEND_F1"});
  CHECK(waits.value().tasks == plain.tasks);
}

TEST_CASE("sends: a blocking sender waits for its send, a receive for the sends before it") {
  const ir::Schedule plain = compiled_with("gpipe", kTwoByTwo, {}).value();
  const auto waits = compiled_with("gpipe", kTwoByTwo, {.sends = Sends::Blocking});
  REQUIRE_MESSAGE(waits.ok(), waits.error().to_string());
  CHECK(added(waits.value(), plain) ==
        std::vector<std::string>{
            "0B0>1SEND_B1",       // the receiver has come to 0B1
            "0SEND_F0>0F1",       // the sender computes on only then
            "0SEND_F1>0B0",       //
            "0SEND_F1>1SEND_B0",  // 0B0's receive is posted after the send before it
            "1F0>0SEND_F1",       //
            "1SEND_B0>1B1",       //
            "1SEND_B1>1STEP0"});
}

TEST_CASE("sends: 1F1B with blocking sends is a deadlock that names tasks and devices") {
  //  device 0 sends 0F1 before it receives 1B0's gradient, device 1 sends that before it receives
  //  0F1's activation
  const auto result = compiled_with(
      "pipedream", {.stages = 2, .micro_batches = 1, .mini_batches = 3, .options = {}},
      {.sends = Sends::Blocking});
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().kind == ir::ErrorKind::Illegal);
  CHECK(result.error().diagnostics.size() == 1);
  const std::string text = result.error().to_string();
  CAPTURE(text);
  for (const char* part :
       {"deadlock: 3 tasks", "device 0: 0SEND_F1 waits for 1STEP0[v0]",
        "device 1: 1STEP0[v0] waits for 1SEND_B0", "device 1: 1SEND_B0 waits for 0SEND_F1",
        "fix: ", "--sends rendezvous"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

// Field case A2: two devices both send first, no policy involved.
const char* const kBothSendFirst =
    "# xpipe.schedule 1\npolicy by-hand\nmicro-batches 2\nmini-batches 1\ndevices 2\n"
    "stage 0 device 0 slots 1\nstage 1 device 1 slots 1\n"
    "compute 0: 0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0B1[s0:v0] 0STEP0[v0]\n"
    "compute 1: 1F0[s0:v0] 1B0[s0:v0] 1F1[s0:v0] 1B1[s0:v0] 1STEP0[v0]\n"
    "send 0>1: 0SEND_F0[4096B] 0SEND_F1[4096B]\nreceive 0>1: 1RECV_F0[4096B] 1RECV_F1[4096B]\n"
    "send 1>0: 1SEND_B0[4096B] 1SEND_B1[4096B]\nreceive 1>0: 0RECV_B0[4096B] 0RECV_B1[4096B]\n"
    "edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 0F1>0SEND_F1 0SEND_F1>1RECV_F1 "
    "1RECV_F1>1F1 1B0>1SEND_B0 1SEND_B0>0RECV_B0 0RECV_B0>0B0 1B1>1SEND_B1 1SEND_B1>0RECV_B1 "
    "0RECV_B1>0B1\n";

TEST_CASE("sends: two devices that both send first deadlock only where sends block (A2)") {
  const ir::Schedule plain = ir::schedule_from_text(kBothSendFirst, "").value();
  REQUIRE(ir::validate(plain).empty());
  for (const Sends mode : {Sends::Eager, Sends::Rendezvous}) {
    ir::Schedule schedule = plain;
    REQUIRE(add_send_waits(mode, schedule).ok());
    CHECK(ir::validate(schedule).empty());
  }
  ir::Schedule schedule = plain;
  REQUIRE(add_send_waits(Sends::Blocking, schedule).ok());
  const std::vector<ir::Diagnostic> faults = ir::validate(schedule);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].code == "cycle");
  CHECK(faults[0].message.find("deadlock: 2 tasks") == 0);
  CHECK(faults[0].message.find("0SEND_F1[4096B]") != std::string::npos);
  CHECK(faults[0].message.find("1SEND_B0[4096B]") != std::string::npos);
}

TEST_CASE("sends: a schedule that is there already is told to wait, or that it cannot") {
  ir::Schedule schedule = ir::schedule_from_text(kBothSendFirst, "").value();
  REQUIRE(make_sends_wait(Sends::Eager, schedule).ok());
  CHECK(schedule.options.empty());
  const ir::Status blocked = make_sends_wait(Sends::Blocking, schedule);
  REQUIRE_FALSE(blocked.ok());
  CHECK(blocked.error().kind == ir::ErrorKind::Illegal);
  CHECK(blocked.error().to_string().find("fix: with blocking sends") != std::string::npos);
}

TEST_CASE("sends: the mode travels with the schedule and is not given twice") {
  ir::Schedule schedule = compiled_with("gpipe", kTwoByTwo, {.sends = Sends::Rendezvous}).value();
  const std::vector<std::pair<std::string, std::string>> options = {{"sends", "rendezvous"}};
  CHECK(schedule.options == options);
  CHECK(ir::schedule_from_text(ir::schedule_to_text(schedule), "").value() == schedule);
  CHECK(ir::schedule_from_json(ir::schedule_to_json(schedule), "").value() == schedule);
  const ir::Status again = add_send_waits(Sends::Blocking, schedule);
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().kind == ir::ErrorKind::Usage);
  CHECK(again.error().to_string().find("rendezvous") != std::string::npos);
}

TEST_CASE("recompute: before each backward, on the weights that it reads") {
  const auto schedule =
      compiled_with("xpipe", {.stages = 2, .micro_batches = 2, .mini_batches = 1, .options = {}},
                    {.recompute = Recompute::Stage});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(lane_of(schedule.value(), 1) == "1F0 1RECOMPUTE0 1B0 1F1 1RECOMPUTE1 1B1 1STEP0");
  CHECK(std::count(schedule.value().options.begin(), schedule.value().options.end(),
                   std::pair<std::string, std::string>("recompute", "stage")) == 1);
}

TEST_CASE("recompute: a prediction for the backward is made before the recompute that reads it") {
  const auto schedule =
      compiled_with("xpipe", {.stages = 4, .micro_batches = 1, .mini_batches = 6, .options = {}},
                    {.recompute = Recompute::Layer});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  const std::string lane = lane_of(schedule.value(), 3);
  CAPTURE(lane);
  CHECK(lane.find("3PREDICT_B4 3RECOMPUTE4 3B4") != std::string::npos);
}

TEST_CASE("placement: two stages on one device, merged as drawn") {
  const auto schedule = compiled_with("gpipe", kTwoByTwo, {.layout = placed(2, {0, 0})});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(schedule.value().devices == 1);
  CHECK(lane_of(schedule.value(), 0) == "0F0 1F0 0F1 1F1 1B0 0B0 1B1 1STEP0 0B1 0STEP0");
  CHECK(schedule.value().lanes.size() == 1);
  CHECK(schedule.value().edges.empty());
}

TEST_CASE("placement: transfers come from the stage map, and neighbours need none (A4)") {
  const PlanRequest eight{.stages = 8, .micro_batches = 4, .mini_batches = 1, .options = {}};

  struct Case {
    std::vector<std::uint32_t> placement;
    std::size_t transfers;
  };

  for (const Case& c : std::vector<Case>{{{0, 1, 2, 3, 3, 2, 1, 0}, 48},
                                         {{0, 1, 2, 3, 0, 1, 2, 3}, 56},
                                         {{0, 0, 1, 1, 2, 2, 3, 3}, 24}}) {
    for (const Policy& policy : all_policies().all()) {
      CAPTURE(policy.name);
      PlanRequest request = eight;
      request.mini_batches = policy.whole_mini_batch ? 4 : 1;
      const auto schedule = compiled_with(policy.name, request, {.layout = placed(8, c.placement)});
      REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
      CHECK(schedule.value().devices == 4);
      CHECK(transfers(schedule.value()) == c.transfers);
      for (const ir::Lane& lane : schedule.value().lanes) {
        CHECK((lane.kind == ir::LaneKind::Compute) == (lane.device == lane.peer));
      }
    }
  }
}

TEST_CASE("placement: each stage keeps the order that its policy gave it") {
  const PlanRequest request{.stages = 4, .micro_batches = 3, .mini_batches = 3, .options = {}};
  for (const Policy& policy : all_policies().all()) {
    CAPTURE(policy.name);
    const ir::Schedule alone = compiled_with(policy.name, request, {}).value();
    const ir::Schedule shared =
        compiled_with(policy.name, request, {.layout = placed(4, {0, 1, 1, 0})}).value();
    for (std::uint16_t k = 0; k < 4; ++k) {
      const auto order = [k](const ir::Schedule& schedule) {
        std::vector<std::string> tasks;
        for (const ir::Lane& lane : schedule.lanes) {
          for (const ir::TaskId id : lane.order) {
            if (schedule.task(id).stage == ir::StageId{k} && lane.kind == ir::LaneKind::Compute) {
              tasks.push_back(ir::to_text(schedule.task(id)));
            }
          }
        }
        return tasks;
      };
      CHECK(order(shared) == order(alone));
    }
  }
}

TEST_CASE("passes: every policy is legal with them all but blocking, for D, T, N <= 6") {
  const std::vector<std::vector<std::uint32_t>> placements = {
      {0},          {0, 0},       {1, 0},          {0, 1, 0},         {0, 0, 1},
      {0, 1, 1, 0}, {0, 1, 0, 1}, {0, 1, 2, 1, 0}, {2, 1, 0, 0, 1, 2}};
  for (const Policy& policy : all_policies().all()) {
    for (const std::vector<std::uint32_t>& placement : placements) {
      const auto stages = static_cast<std::uint32_t>(placement.size());
      for (const std::uint32_t t : {1U, 2U, 3U, 6U}) {
        for (const std::uint32_t n : {1U, 2U, 6U}) {
          for (const Recompute recompute : {Recompute::None, Recompute::Stage}) {
            for (const Sends sends : {Sends::Eager, Sends::Rendezvous}) {
              INFO(policy.name, " D=", stages, " T=", t, " N=", n, " first on device ",
                   placement[0], " ", recompute_name(recompute), " ", sends_name(sends));
              const auto schedule = compiled_with(
                  policy.name,
                  {.stages = stages, .micro_batches = t, .mini_batches = n, .options = {}},
                  {.layout = placed(stages, placement), .recompute = recompute, .sends = sends});
              REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
            }
          }
        }
      }
    }
  }
}

TEST_CASE("passes: blocking sends run, or the ring names a task on each of its devices") {
  std::size_t runs = 0;
  std::size_t rings = 0;
  for (const Policy& policy : all_policies().all()) {
    for (std::uint32_t d = 1; d <= 6; ++d) {
      for (std::uint32_t n = 1; n <= 6; ++n) {
        INFO(policy.name, " D=", d, " N=", n);
        const auto result = compiled_with(
            policy.name, {.stages = d, .micro_batches = 2, .mini_batches = n, .options = {}},
            {.sends = Sends::Blocking});
        // Without a flush a stage sends activations on while its successor sends a gradient back.
        const bool in_turn =
            policy.name == "gpipe" || d == 1 || (policy.whole_mini_batch && n == 1);
        CHECK(result.ok() == in_turn);
        runs += result.ok() ? 1 : 0;
        if (!result.ok()) {
          ++rings;
          CHECK(result.error().kind == ir::ErrorKind::Illegal);
          const std::string text = result.error().to_string();
          std::size_t devices = 0;
          for (std::uint32_t device = 0; device < d; ++device) {
            devices += text.find("device " + std::to_string(device) + ": ") < text.size() ? 1 : 0;
          }
          CHECK(devices >= 2);
          CHECK(text.find("SEND_F") != std::string::npos);
          CHECK(text.find("SEND_B") != std::string::npos);
        }
      }
    }
  }
  CHECK(runs > 0);
  CHECK(rings > 0);
}

TEST_CASE("passes: a schedule costs at most 64 bytes a task with waiting sends and recomputes") {
  for (const Sends sends : {Sends::Rendezvous, Sends::Blocking}) {
    const auto schedule =
        compiled_with("gpipe", {.stages = 8, .micro_batches = 8, .mini_batches = 64, .options = {}},
                      {.recompute = sends == Sends::Blocking ? Recompute::Stage : Recompute::None,
                       .sends = sends});
    REQUIRE(schedule.ok());
    CHECK(ir::heap_bytes_per_task(schedule.value()) <= 64.0);
  }
}

}  // namespace
}  // namespace xpipe::scheduler
