// Failures of a training: a fault in any kind of task, a loss that is no number, an interruption.
// The first cause is reported with its task, everything stops, and nothing hangs (ctest's TIMEOUT).
#include <atomic>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"

namespace xpipe::tests {
namespace {

using executor::HandlerTable;

/// Together their schedules hold every kind of task that the torch handlers do.
const std::vector<PolicyCase> kOfEveryKind{{"xpipe", {}}, {"pipedream", {}}, {"gpipe", {}}};

ToyTraining toy_training() {
  ToyTraining training;
  training.optimizer.learning_rate = 0.01;
  return training;
}

/// Where the table's handler of `kind` fails from its `nth` call on.
HandlerTable failing(
    HandlerTable table, ir::TaskKind kind, int nth, std::atomic<int>& calls, bool by_exception) {
  executor::Handler& handler = table[static_cast<std::size_t>(kind)];
  handler = [handler, nth, &calls, by_exception](const ir::Schedule& schedule,
                                                 ir::TaskId id) -> ir::Status {
    if (++calls < nth) {
      return handler(schedule, id);
    }
    if (by_exception) {
      throw std::runtime_error("injected");
    }
    return ir::make_error(ir::ErrorKind::Runtime, "injected", "", "injected");
  };
  return table;
}

TEST_CASE("a fault in any kind of task ends the training with that task's name, and no hang") {
  std::set<ir::TaskKind> tried;
  const ToyTraining training = toy_training();
  for (const PolicyCase& policy : kOfEveryKind) {
    const ir::Schedule schedule = compiled(policy.policy, 4, 2, 6, policy.options);
    std::set<ir::TaskKind> kinds;
    for (const ir::Task& task : schedule.tasks) {
      kinds.insert(task.kind());
    }
    for (const ir::TaskKind kind : kinds) {
      tried.insert(kind);
      for (const On on : {On::Inline, On::Cpu}) {
        for (const bool by_exception : {false, true}) {
          const auto toy = toy_run(schedule, training);
          std::atomic<int> calls = 0;
          const ir::Status status = run_segment(
              *toy, training, 0, failing(toy->run->handlers(), kind, 3, calls, by_exception), on);
          CAPTURE(policy.policy);
          CAPTURE(ir::kind_name(kind));
          REQUIRE_FALSE(status.ok());
          const ir::Diagnostic& first = status.error().diagnostics.front();
          CHECK(status.error().kind == ir::ErrorKind::Runtime);
          CHECK(first.message == "injected");
          const auto task = ir::task_from_text(first.where);
          REQUIRE_MESSAGE(task.ok(), first.where);
          CHECK(task.value().kind() == kind);
        }
      }
    }
  }
  for (const ir::TaskKind kind :
       {ir::TaskKind::Forward, ir::TaskKind::Backward, ir::TaskKind::Predict, ir::TaskKind::Step,
        ir::TaskKind::Stash, ir::TaskKind::Release, ir::TaskKind::Send, ir::TaskKind::Receive}) {
    CAPTURE(ir::kind_name(kind));
    CHECK(tried.contains(kind));
  }
}

TEST_CASE("a training goes on after one that failed, as if it had not been") {
  const ToyTraining training = toy_training();
  const ir::Schedule schedule = compiled("xpipe", 4, 2, 6);
  const std::vector<torch::Tensor> expected = trained(schedule, training);
  const auto toy = toy_run(schedule, training);
  std::atomic<int> calls = 0;
  // Nothing has been stepped when the first forward of the last stage fails.
  CHECK_FALSE(run_segment(*toy, training, 0,
                          failing(toy->run->handlers(), ir::TaskKind::Receive, 2, calls, false),
                          On::Cpu)
                  .ok());
  run_all(*toy, training, On::Cpu);
  CHECK(same_bits(weights_of(*toy->run), expected));
}

TEST_CASE(
    "a loss that is no number ends the training and names the mini-batch, unless told not to") {
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const bool stop : {true, false}) {
      for (const On on : {On::Inline, On::Cpu}) {
        const ToyTraining training = toy_training();
        nn::RunOptions options;
        options.stop_on_nan = stop;
        const auto toy = toy_run(compiled("xpipe", 2, 2, 6), training, options);
        toy->samples.inputs[27].fill_(poison);  // in mini-batch 2, its first micro-batch
        const ir::Status status = run_segment(*toy, training, 5, toy->run->handlers(), on);
        CHECK(status.ok() == !stop);
        if (stop) {
          CHECK(status.error().kind == ir::ErrorKind::Runtime);
          const std::string text = status.error().to_string();
          CHECK_MESSAGE(text.find("mini-batch 2 of epoch 5 (micro-batch 4)") != std::string::npos,
                        text);
          CHECK(text.find("1F4[") != std::string::npos);
        } else {
          CHECK(std::isnan(toy->run->take_records()[5].loss));
        }
      }
    }
  }
}

TEST_CASE("an interruption ends the training as such") {
  for (const On on : {On::Inline, On::Cpu}) {
    std::atomic<bool> interrupted = false;
    nn::RunOptions options;
    options.interrupted = &interrupted;
    options.on_mini_batch = [&](const nn::MiniBatchRecord& record) {
      interrupted = record.mini_batch == 2;
    };
    const ToyTraining training = toy_training();
    const auto toy = toy_run(compiled("xpipe", 4, 2, 6), training, options);
    const ir::Status status = run_segment(*toy, training, 0, toy->run->handlers(), on);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().kind == ir::ErrorKind::Interrupted);
    CHECK(toy->run->take_records()[5].samples == 0);
  }
}

TEST_CASE("what LibTorch throws becomes an error of the task") {
  const ToyTraining training = toy_training();
  const auto toy = toy_run(compiled("gpipe", 2, 2, 6), training);
  toy->samples.inputs = torch::zeros({70, 2, 8, 8});  // two channels for a net of one
  const ir::Status status = run_segment(*toy, training, 0, toy->run->handlers(), On::Cpu);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().diagnostics.front().code == "torch-failed");
  CHECK(status.error().diagnostics.front().where == "0F0[s0:v0]");
}

}  // namespace
}  // namespace xpipe::tests
