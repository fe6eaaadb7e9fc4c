#include "app/passes_arguments.h"

#include <utility>

#include "app/arguments.h"

#include "scheduler/layout.h"

namespace xpipe::app {

namespace {

constexpr std::uint32_t kMostOfAKind = 65535;

}  // namespace

std::optional<std::uint32_t> PassesArguments::implied_stages() const {
  if (!replicas.empty()) {
    return static_cast<std::uint32_t>(replicas.size());
  }
  if (!placement.empty()) {
    return static_cast<std::uint32_t>(placement.size());
  }
  return devices;
}

bool PassesArguments::any() const {
  return implied_stages() || recompute != "none" || sends != "eager" || clip_norm ||
         accumulate != 1;
}

void add_passes_options(CLI::App& command, PassesArguments& arguments) {
  whole_number(command, "--devices", arguments.devices, 1, kMostOfAKind,
               "devices, P (default: one a stage and replica); fewer share the stages in order");
  whole_numbers(command, "--placement", arguments.placement, 0, kMostOfAKind - 1,
                "the device of each stage, such as 0,1,1,0; with --replicas of each replica");
  whole_numbers(command, "--replicas", arguments.replicas, 1, kMostOfAKind,
                "devices that work on each stage, such as 2,1,1; micro-batches go round");
  one_of(command, "--recompute", arguments.recompute, {"none", "stage", "layer"},
         "run the forward again before each backward, keeping the stage's or the layers' inputs");
  one_of(command, "--sends", arguments.sends, {"eager", "rendezvous", "blocking"},
         "when a transfer starts, and whether its sender waits");
  whole_number(command, "--accumulate", arguments.accumulate, 1, 1U << 20,
               "mini-batches a step, with the mean over all their samples (default 1); synchronous "
               "policies only");
  real_number(command, "--clip-norm", arguments.clip_norm, 0.0, 1e30,
              "scale the gradients of all stages down to this norm before each step; costs a "
              "synchronization, so synchronous policies only");
}

scheduler::Sends sends_of(const PassesArguments& arguments) {
  return arguments.sends == "rendezvous" ? scheduler::Sends::Rendezvous
         : arguments.sends == "blocking" ? scheduler::Sends::Blocking
                                         : scheduler::Sends::Eager;
}

ir::Result<scheduler::Passes> resolve_passes(const PassesArguments& arguments,
                                             std::uint32_t stages) {
  ir::Result<scheduler::Layout> layout =
      scheduler::resolve_layout({.stages = stages,
                                 .devices = arguments.devices,
                                 .placement = arguments.placement,
                                 .replicas = arguments.replicas});
  if (!layout.ok()) {
    return layout.error();
  }
  scheduler::Passes passes;
  passes.layout = std::move(layout).value();
  passes.recompute = arguments.recompute == "stage"   ? scheduler::Recompute::Stage
                     : arguments.recompute == "layer" ? scheduler::Recompute::Layer
                                                      : scheduler::Recompute::None;
  passes.sends = sends_of(arguments);
  if (arguments.clip_norm && *arguments.clip_norm == 0.0) {
    return ir::make_error(ir::ErrorKind::Usage, "options", "--clip-norm",
                          "found 0, expected a number above 0: with 0 no step would change a "
                          "weight");
  }
  passes.clip_norm = arguments.clip_norm;
  passes.accumulate = arguments.accumulate;
  return passes;
}

}  // namespace xpipe::app
