// Exchanges before steps: clips by the norm over all stages and sums of tied weights, as drawn, on
// shared devices and with replicas, and who refuses them.
#include "scheduler/exchange_pass.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ir/text.h"
#include "ir/validate.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace xpipe::scheduler {
namespace {

ir::Result<ir::Schedule> exchanging(const std::string& policy,
                                    const PlanRequest& request,
                                    const std::vector<StageTie>& ties,
                                    const Passes& passes) {
  PolicyRegistry policies;
  policies::register_all(policies);
  StageGraph graph = chain_of(request.stages);
  graph.ties = ties;
  return compile(*policies.find(policy).value(), request, graph, passes);
}

Layout laid_out(std::uint32_t stages,
                const std::vector<std::uint32_t>& placement,
                const std::vector<std::uint32_t>& replicas) {
  return resolve_layout(
             {.stages = stages, .devices = {}, .placement = placement, .replicas = replicas})
      .value();
}

Passes clipping_every(std::uint32_t mini_batches) {
  Passes passes;
  passes.accumulate = mini_batches;
  passes.clip_norm = 1.0;
  return passes;
}

/// One lane, without the weights read.
std::string drawn(const ir::Schedule& schedule, std::size_t lane) {
  std::string text;
  for (const ir::TaskId id : schedule.lanes[lane].order) {
    const std::string token = ir::to_text(schedule.task(id));
    const bool whole = schedule.task(id).kind() == ir::TaskKind::SumTied;
    text += (text.empty() ? "" : " ") + (whole ? token : token.substr(0, token.find('[')));
  }
  return text;
}

/// "FROM>TO" of the edges between compute lanes, up to the brackets.
std::set<std::string> between_lanes(const ir::Schedule& schedule) {
  std::set<std::string> edges;
  for (const ir::Edge& edge : schedule.edges) {
    const ir::Task& from = schedule.task(edge.from);
    const ir::Task& to = schedule.task(edge.to);
    if (schedule.lane(from.lane).kind == ir::LaneKind::Compute &&
        schedule.lane(to.lane).kind == ir::LaneKind::Compute) {
      const auto name = [](const std::string& text) { return text.substr(0, text.find('[')); };
      edges.insert(name(ir::to_text(from)) + ">" + name(ir::to_text(to)));
    }
  }
  return edges;
}

TEST_CASE("clip: every stage clips before its step, behind the gradients of all") {
  const auto schedule =
      exchanging("gpipe", {.stages = 3, .micro_batches = 2, .mini_batches = 1, .options = {}}, {},
                 {.clip_norm = 2.5});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(drawn(schedule.value(), 0) == "0F0 0F1 0B0 0B1 0CLIP0 0STEP0");
  CHECK(drawn(schedule.value(), 2) == "2F0 2F1 2B0 2B1 2CLIP0 2STEP0");
  CHECK(between_lanes(schedule.value()) == std::set<std::string>{"0B1>1CLIP0", "0B1>2CLIP0",
                                                                 "1B1>0CLIP0", "1B1>2CLIP0",
                                                                 "2B1>0CLIP0", "2B1>1CLIP0"});
  CHECK(schedule.value().options ==
        std::vector<std::pair<std::string, std::string>>{{"clip-norm", "2.5"}});
}

TEST_CASE("clip: stages that share a device step only when all have clipped") {
  const auto schedule =
      exchanging("gpipe", {.stages = 2, .micro_batches = 1, .mini_batches = 2, .options = {}}, {},
                 {.layout = laid_out(2, {0, 0}, {}), .clip_norm = 1.0});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(drawn(schedule.value(), 0) ==
        "0F0 1F0 1B0 0B0 0CLIP0 1CLIP0 0STEP0 1STEP0 0F1 1F1 1B1 0B1 0CLIP1 1CLIP1 0STEP1 1STEP1");
  CHECK(schedule.value().edges.empty());
}

TEST_CASE("tied weights: their gradients are summed before the clip and the step") {
  const auto schedule =
      exchanging("gpipe", {.stages = 3, .micro_batches = 1, .mini_batches = 1, .options = {}},
                 {{ir::StageId{0}, ir::StageId{2}, 8}}, {.clip_norm = 1.0});
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(drawn(schedule.value(), 0) == "0F0 0B0 0SUMTIED0[2] 0CLIP0 0STEP0");
  CHECK(drawn(schedule.value(), 1) == "1F0 1B0 1CLIP0 1STEP0");
  CHECK(drawn(schedule.value(), 2) == "2F0 2B0 2SUMTIED0[0] 2CLIP0 2STEP0");
  const std::set<std::string> edges = between_lanes(schedule.value());
  CHECK(edges.contains("0B0>2SUMTIED0"));
  CHECK(edges.contains("2B0>0SUMTIED0"));
  CHECK(edges.contains("2SUMTIED0>1CLIP0"));
  CHECK(edges.size() == 2 + 6);
}

TEST_CASE("exchanges: legal for every size, layout and way to send, in text and back") {
  const std::vector<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> layouts = {
      {{}, {1}},         {{}, {1, 1, 1, 1}},           {{0, 1, 1, 0}, {1, 1, 1, 1}},
      {{0, 0}, {1, 1}},  {{0, 0, 1, 1}, {1, 1, 1, 1}}, {{}, {1, 2, 1}},
      {{}, {1, 3, 2, 1}}};
  for (const auto& [placement, replicas] : layouts) {
    const auto stages = static_cast<std::uint32_t>(replicas.size());
    std::vector<StageTie> ties;
    if (stages > 1) {
      ties.push_back({ir::StageId{0}, ir::StageId(static_cast<std::uint16_t>(stages - 1)), 8});
    }
    for (const Sends sends : {Sends::Eager, Sends::Rendezvous}) {
      for (const std::uint32_t micro_batches : {1U, 6U}) {
        for (const Recompute recompute : {Recompute::None, Recompute::Stage}) {
          CAPTURE(stages);
          CAPTURE(micro_batches);
          const auto schedule = exchanging(
              "gpipe",
              {.stages = stages, .micro_batches = micro_batches, .mini_batches = 3, .options = {}},
              ties,
              {.layout = laid_out(stages, placement, replicas),
               .recompute = recompute,
               .sends = sends,
               .clip_norm = 1.0});
          REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
          CHECK(ir::validate(schedule.value()).empty());
          const auto back = ir::schedule_from_text(ir::schedule_to_text(schedule.value()), "");
          REQUIRE(back.ok());
          CHECK(back.value() == schedule.value());
        }
      }
    }
  }
}

TEST_CASE("accumulation: steps and exchanges come every second mini-batch, and at the end") {
  Passes passes = clipping_every(2);
  passes.layout = laid_out(2, {}, {2, 1});
  const auto schedule = exchanging(
      "gpipe", {.stages = 2, .micro_batches = 2, .mini_batches = 3, .options = {}}, {}, passes);
  REQUIRE_MESSAGE(schedule.ok(), schedule.error().to_string());
  CHECK(drawn(schedule.value(), 0) ==
        "0F0 0B0 0F2 0B2 0ALLREDUCE1 0CLIP1 0STEP1 0F4 0B4 0ALLREDUCE2 0CLIP2 0STEP2");
  CHECK(drawn(schedule.value(), 2) ==
        "1F0 1F1 1B0 1B1 1F2 1F3 1B2 1B3 1CLIP1 1STEP1 1F4 1F5 1B4 1B5 1CLIP2 1STEP2");
  for (const ir::Task& task : schedule.value().tasks) {
    if (const ir::WeightRead* read = ir::weights_read(task)) {
      CHECK(read->version == (index_of(ir::mini_batch_of(task, 2)) < 2 ? 0U : 1U));
    }
  }
  CHECK(schedule.value().options ==
        std::vector<std::pair<std::string, std::string>>{{"accumulate", "2"}, {"clip-norm", "1"}});
}

TEST_CASE("accumulation: asynchronous policies refuse it and say why") {
  for (const std::string policy : {"xpipe", "pipedream", "spectrain"}) {
    const auto refused =
        exchanging(policy, {.stages = 3, .micro_batches = 2, .mini_batches = 4, .options = {}}, {},
                   {.accumulate = 2});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().diagnostics[0].where == "--accumulate");
    CHECK(refused.error().to_string().find("would be another one") != std::string::npos);
  }
}

TEST_CASE("exchanges: asynchronous policies refuse them and say why, one stage does not") {
  const PlanRequest request{.stages = 3, .micro_batches = 2, .mini_batches = 4, .options = {}};
  for (const std::string policy : {"xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const auto clipped = exchanging(policy, request, {}, {.clip_norm = 1.0});
    REQUIRE_FALSE(clipped.ok());
    CHECK(clipped.error().kind == ir::ErrorKind::Usage);
    CHECK(clipped.error().diagnostics[0].where == "--clip-norm");
    CHECK(clipped.error().to_string().find("would stop them all at every step") !=
          std::string::npos);
    const auto tied = exchanging(policy, request, {{ir::StageId{0}, ir::StageId{2}, 8}}, {});
    REQUIRE_FALSE(tied.ok());
    CHECK(tied.error().kind == ir::ErrorKind::Usage);
    CHECK(tied.error().diagnostics[0].where == "stages 0 and 2");
    CHECK(tied.error().to_string().find("the two copies would part") != std::string::npos);
    const auto alone =
        exchanging(policy, {.stages = 1, .micro_batches = 2, .mini_batches = 4, .options = {}}, {},
                   {.clip_norm = 1.0});
    CHECK_MESSAGE(alone.ok(), alone.error().to_string());
  }
  const auto replicated = exchanging("gpipe", request, {{ir::StageId{0}, ir::StageId{2}, 8}},
                                     {.layout = laid_out(3, {}, {2, 1, 1})});
  REQUIRE_FALSE(replicated.ok());
  CHECK(replicated.error().to_string().find("shares weights with another stage") !=
        std::string::npos);
}

}  // namespace
}  // namespace xpipe::scheduler
