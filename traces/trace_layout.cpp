#include "traces/trace_layout.h"

#include <variant>

namespace xpipe::traces {

namespace {

using ir::index_of;

/// The facts of one kind's payload.
struct FactWriter {
  Facts& facts;

  void operator()(const ir::Forward& t) const { pass(t.micro_batch, t.weights); }

  void operator()(const ir::Backward& t) const { pass(t.micro_batch, t.weights); }

  void operator()(const ir::BackwardInput& t) const { pass(t.micro_batch, t.weights); }

  void operator()(const ir::BackwardWeight& t) const { pass(t.micro_batch, t.weights); }

  void operator()(const ir::Recompute& t) const { pass(t.micro_batch, t.weights); }

  void operator()(const ir::Send& t) const { message(t.micro_batch, t.peer, t.bytes); }

  void operator()(const ir::Receive& t) const { message(t.micro_batch, t.peer, t.bytes); }

  void operator()(const ir::AllReduce& t) const { add("mini_batch", index_of(t.mini_batch)); }

  void operator()(const ir::SumTied& t) const {
    add("mini_batch", index_of(t.mini_batch));
    add("peer", index_of(t.peer));
  }

  void operator()(const ir::ClipNorm& t) const { add("mini_batch", index_of(t.mini_batch)); }

  void operator()(const ir::Predict& t) const {
    add("mini_batch", index_of(t.mini_batch));
    add("version", t.version);
    add("distance", t.distance);
    add("from_slot", index_of(t.from));
    add("into_slot", index_of(t.into));
  }

  void operator()(const ir::Step& t) const {
    add("mini_batch", index_of(t.mini_batch));
    add("version", t.version);
  }

  void operator()(const ir::Stash& t) const {
    add("mini_batch", index_of(t.mini_batch));
    add("version", t.version);
    add("from_slot", index_of(t.from));
    add("into_slot", index_of(t.into));
  }

  void operator()(const ir::Release& t) const {
    add("mini_batch", index_of(t.mini_batch));
    add("slot", index_of(t.slot));
  }

  void add(std::string_view name, std::int64_t value) const { facts.emplace_back(name, value); }

  void pass(ir::MicroBatch micro_batch, const ir::WeightRead& weights) const {
    add("micro_batch", index_of(micro_batch));
    add("slot", index_of(weights.slot));
    add("version", weights.version);
    add("distance", weights.distance);
  }

  void message(ir::MicroBatch micro_batch, ir::StageId peer, ir::Bytes bytes) const {
    add("micro_batch", index_of(micro_batch));
    add("peer", index_of(peer));
    if (bytes != ir::kUnknownBytes) {
      add("bytes", bytes);
    }
  }
};

}  // namespace

std::string_view lane_kind_name(ir::LaneKind kind) {
  switch (kind) {
    case ir::LaneKind::Compute:
      return "compute";
    case ir::LaneKind::Send:
      return "send";
    case ir::LaneKind::Receive:
      return "receive";
  }
  return "unknown";
}

Facts facts_of(const ir::Task& task) {
  Facts facts;
  facts.reserve(7);
  facts.emplace_back("stage", index_of(task.stage));
  std::visit(FactWriter{facts}, task.payload);
  return facts;
}

}  // namespace xpipe::traces
