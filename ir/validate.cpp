#include "ir/validate.h"

#include <algorithm>
#include <utility>

#include "ir/text.h"
#include "ir/validate_levels.h"

namespace xpipe::ir {

namespace {

using enum ValidationLevel;

constexpr ValidationRule kRules[] = {
    {"no-tasks", Shape, "a schedule has stages, devices, mini-batches, micro-batches and tasks"},
    {"id-range", Shape, "stages, devices, lanes, tasks, micro- and mini-batches are in range"},
    {"task-not-in-lane", Shape, "every task stands in a lane"},
    {"task-twice", Shape, "no task stands in two places of the lanes"},
    {"lane-mismatch", Shape, "a task says the lane that it stands in"},
    {"lane-kind", Shape,
     "sends stand in send lanes, receives in receive lanes, the rest in compute "
     "lanes"},
    {"replica-twice", Shape, "the replicas of a stage are on different devices"},
    {"lane-device", Shape, "a stage computes on a compute lane of its device"},
    {"lane-peer", Shape, "a compute lane has no peer but its device"},
    {"lane-twice", Shape, "each direction between two devices has one send and one receive lane"},
    {"edge-within-lane", Shape, "edges join tasks of different lanes"},
    {"edge-duplicate", Shape, "no edge is given twice"},
    {"edge-order", Shape, "edges are sorted by (from, to)"},
    {"cycle", Shape, "no tasks wait for each other in a ring"},
    {"missing-task", Meaning, "each stage runs each micro-batch forward, and backward if any does"},
    {"duplicate-task", Meaning,
     "each stage runs each micro-batch once per direction, and each "
     "mini-batch's step once"},
    {"backward-before-forward", Meaning, "a backward comes after its forward"},
    {"weight-before-input", Meaning, "the weight part of a backward comes after its input part"},
    {"recompute-order", Meaning, "a recompute stands between its forward and its backward"},
    {"recompute-slot", Meaning, "a recompute reads the weights that its backward reads"},
    {"replica-mismatch", Meaning, "all passes of a micro-batch are on one replica of the stage"},
    {"all-reduce-missing", Meaning, "a replicated stage sums its gradients before each step"},
    {"all-reduce-order", Meaning,
     "an all-reduce stands between its backwards, those of all replicas, and its step"},
    {"tie-missing", Meaning,
     "stages that share weights both sum their gradients before each of their steps"},
    {"tie-order", Meaning,
     "a sum of tied weights stands between the gradients of both stages and its step"},
    {"clip-missing", Meaning,
     "where a schedule clips, every stage and replica does so for each step"},
    {"clip-order", Meaning, "a clip stands between the gradients of all stages and its step"},
    {"step-missing", Meaning,
     "all replicas of a stage, and stages with as many, step for the same mini-batches, the last "
     "one included"},
    {"step-order", Meaning, "a stage steps in the order of mini-batches"},
    {"step-before-backward", Meaning, "a step comes after all backwards whose gradients it uses"},
    {"version-mismatch", Meaning, "a slot holds the version and distance that its reader says"},
    {"read-unwritten-slot", Meaning, "a slot is written before it is read"},
    {"read-released-slot", Meaning, "a slot is not read after its release"},
    {"copy-from-slot", Meaning, "predictions and stashes are made from the master, slot 0"},
    {"predict-into-master", Meaning, "predictions and stashes are not written into slot 0"},
    {"predict-distance-zero", Meaning, "a prediction aims at least one step ahead"},
    {"release-free-slot", Meaning, "what is released is a copy that was written"},
    {"slot-race", Meaning,
     "two tasks that touch one slot, one writing, are ordered by lanes and "
     "edges"},
    {"send-to-self", Communication, "messages go to a stage on another device"},
    {"wrong-link", Communication, "a message stands in the lane between its stages' devices"},
    {"message-direction", Communication, "forwards go to later stages, gradients to earlier ones"},
    {"duplicate-message", Communication,
     "a tensor is sent and received once per destination stage"},
    {"send-without-receive", Communication, "every send has its receive"},
    {"receive-without-send", Communication, "every receive has its send"},
    {"bytes-mismatch", Communication, "both ends of a message carry the same bytes"},
    {"message-order", Communication, "messages of one direction are received in the order sent"},
    {"missing-dependency", Communication,
     "a send waits for its producer, a receive for its send, a "
     "consumer for its receive, a stage for its input"},
    {"missing-gradient", Communication,
     "each activation sent brings a gradient back, and no "
     "gradient comes without"},
    {"slots-declared", Resources, "slots are below their stage's number of slots"},
    {"slots-unused", Resources, "every declared slot is written by some task"},
};

}  // namespace

std::span<const ValidationRule> validation_rules() {
  return kRules;
}

std::vector<Diagnostic> validate(const Schedule& schedule) {
  validation::Findings shape(schedule);
  validation::Index index(schedule);
  validation::check_shape(index, shape);
  if (!shape.empty()) {
    return std::move(shape).take();
  }
  validation::check_cycles(index, shape);
  if (!shape.empty()) {
    return std::move(shape).take();
  }

  validation::Findings meaning(schedule);
  validation::check_counts(schedule, meaning);
  if (!meaning.empty()) {
    return std::move(meaning).take();
  }
  const validation::Grid grid(index);
  const validation::Order order(index);
  validation::check_passes(index, grid, order, meaning);
  validation::check_exchanges(index, order, meaning);
  validation::check_recomputes(index, grid, order, meaning);
  validation::check_slots(index, order, meaning);
  if (!meaning.empty()) {
    return std::move(meaning).take();
  }

  validation::Findings communication(schedule);
  validation::check_communication(index, grid, communication);
  if (!communication.empty()) {
    return std::move(communication).take();
  }

  validation::Findings resources(schedule);
  validation::check_resources(index, resources);
  return std::move(resources).take();
}

Status check_legal(const Schedule& schedule) {
  std::vector<Diagnostic> faults = validate(schedule);
  if (faults.empty()) {
    return {};
  }
  return Error{ErrorKind::Illegal, std::move(faults)};
}

namespace validation {

bool Findings::counted(std::string_view code) {
  auto place = counts_.find(code);
  if (place == counts_.end()) {
    const bool listed =
        std::any_of(std::begin(kRules), std::end(kRules),
                    [code](const ValidationRule& rule) { return rule.code == code; });
    XPIPE_CHECK(listed) << "the validator's code \"" << code << "\" is not in its list";
    place = counts_.emplace(code, 0).first;
  }
  return ++place->second <= kMaxFaultsPerCode;
}

void Findings::add(std::string_view code, std::string where, std::string message) {
  if (counted(code)) {
    findings_.push_back({0, {std::string(code), std::move(where), std::move(message)}});
  }
}

void Findings::add(std::string_view code, TaskId task, std::string message) {
  if (counted(code)) {
    findings_.push_back({std::uint64_t{index_of(task)} + 1,
                         {std::string(code), to_text(schedule_.task(task)), std::move(message)}});
  }
}

std::vector<Diagnostic> Findings::take() && {
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const Finding& a, const Finding& b) { return a.order < b.order; });
  std::vector<Diagnostic> out;
  out.reserve(findings_.size() + counts_.size());
  for (Finding& finding : findings_) {
    out.push_back(std::move(finding.diagnostic));
  }
  for (const auto& [code, count] : counts_) {
    if (count > kMaxFaultsPerCode) {
      out.push_back(
          {code, "schedule", std::to_string(count - kMaxFaultsPerCode) + " more of this code"});
    }
  }
  return out;
}

}  // namespace validation

}  // namespace xpipe::ir
