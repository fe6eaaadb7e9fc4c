// Zero bubble's measured throughputs beside two predictions: latency only, and calibrated.
//
//   ./dev bench fidelity_zero_bubble       reads $XPIPE_SHARED (default ../shared)
//
// Latency only: the paper's profile, messages that arrive after its T_comm; the published model.
// Calibrated: besides, an optimizer step priced by bytes over the data sheet's memory bandwidth,
// and one constant for all rows: what posting a message costs the stage that sends it (Megatron's
// p2p calls synchronise the device after each exchange, so a stage stands still while its host
// posts). Fitted on four rows of 1F1B, tested on the twelve others; then on three models, tested on
// the fourth. Prints the Markdown tables of docs/fidelity.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/list_schedule.h"
#include "bench/published.h"

#include "scheduler/cost_model.h"
#include "simulator/simulate.h"

namespace {

using namespace xpipe;         // NOLINT(google-build-using-namespace): a program
using namespace xpipe::bench;  // NOLINT(google-build-using-namespace)
using ir::Nanos;

/// One measured throughput, and what predicts it.
struct Measurement {
  std::string model;
  ListSchedule schedule = ListSchedule::OneFOneB;
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;
  scheduler::StageCosts stage;  ///< per micro-batch, as the paper profiled it
  Nanos communication = 0;
  Nanos step = 0;            ///< priced, not fitted
  double samples = 0;        ///< of a mini-batch
  double samples_per_s = 0;  ///< measured, all GPUs
};

/// Adam in mixed precision touches 28 bytes a parameter: gradient read (2), fp32 master, both
/// moments read and written (24), fp16 weights written (2); A100-80G: 2039 GB/s (data sheet).
Nanos step_time(double parameters) {
  return nanos(parameters * 28 / 2039e9);
}

std::vector<Measurement> zero_bubble_measurements() {
  const std::map<std::string, double> parameters = {
      {"1.5B", 1.5e9}, {"6.2B", 6.2e9}, {"14.6B", 14.6e9}, {"28.3B", 28.3e9}};
  std::vector<Measurement> all;
  for (const Row& row : read_table("zero_bubble_configs.csv")) {
    Measurement of;
    of.model = row.at("model");
    of.stages = static_cast<std::uint32_t>(value(row, "p"));
    of.micro_batches = static_cast<std::uint32_t>(value(row, "m"));
    of.stage = {.forward = nanos(value(row, "T_F_ms") / 1e3),
                .backward_input = nanos(value(row, "T_B_ms") / 1e3),
                .backward_weight = nanos(value(row, "T_W_ms") / 1e3)};
    of.communication = nanos(value(row, "T_comm_ms") / 1e3);
    of.step = step_time(parameters.at(of.model) / of.stages);
    of.samples = of.micro_batches * value(row, "micro_batch_size");
    // The published ZB-1p bubble rates equal ZB-H1's in every row, so its lists stand for it.
    for (const auto& [schedule, column] :
         {std::pair{ListSchedule::OneFOneB, "measured_1f1b_samples_per_gpu_s"},
          std::pair{ListSchedule::ZbH1, "measured_zb_1p_samples_per_gpu_s"}}) {
      of.schedule = schedule;
      of.samples_per_s = value(row, column) * of.stages;
      all.push_back(of);
    }
  }
  return all;
}

/// Predicted over measured throughput less one. `posting`: what each forward and each backward adds
/// to its stage for posting its message and waiting for the device. With `latency_only` nothing but
/// the profile and the latency counts.
double throughput_error(const Measurement& of, Nanos posting, bool latency_only) {
  static std::map<std::pair<int, std::pair<std::uint32_t, std::uint32_t>>, ir::Schedule> compiled;
  const auto key = std::pair(static_cast<int>(of.schedule), std::pair(of.stages, of.micro_batches));
  if (!compiled.contains(key)) {
    compiled[key] = must(list_schedule(of.schedule, of.stages, of.micro_batches));
  }
  scheduler::CostModel costs =
      scheduler::uniform_costs(of.stages, of.stages, 0, 0, {.latency = of.communication});
  costs.stages.assign(of.stages, of.stage);
  for (scheduler::StageCosts& stage : costs.stages) {
    stage.forward += latency_only ? 0 : posting;
    stage.backward_input += latency_only ? 0 : posting;
    stage.step = latency_only ? 0 : of.step;
  }
  const Nanos makespan = ir::makespan(simulator::simulate(compiled[key], costs));
  return of.samples / seconds(makespan) / of.samples_per_s - 1;
}

/// The posting cost with the smallest sum of squared errors, to 10 us.
Nanos fit_posting(const std::vector<Measurement>& measured) {
  std::optional<std::pair<double, Nanos>> best;
  for (Nanos posting = 0; posting <= 3'000'000; posting += 10'000) {
    double sum = 0;
    for (const Measurement& of : measured) {
      sum += std::pow(throughput_error(of, posting, false), 2);
    }
    best = std::min(best.value_or(std::pair(sum, posting)), std::pair(sum, posting));
  }
  return best ? best->second : 0;
}

struct Errors {
  double mean = 0;   ///< of the absolute values
  double worst = 0;  ///< the largest of them
};

Errors errors_of(const std::vector<double>& all) {
  Errors errors;
  for (const double error : all) {
    errors.mean += std::abs(error) / static_cast<double>(all.size());
    errors.worst = std::max(errors.worst, std::abs(error));
  }
  return errors;
}

void print_zero_bubble() {
  const std::vector<Measurement> all = zero_bubble_measurements();
  if (all.empty()) {
    return;
  }
  // Fitted on one 1F1B row a model, the one with fewer micro-batches; never on ZB-1p.
  std::vector<Measurement> fitted;
  std::map<std::string, bool> seen;
  for (const Measurement& of : all) {
    if (of.schedule == ListSchedule::OneFOneB && !std::exchange(seen[of.model], true)) {
      fitted.push_back(of);
    }
  }
  const Nanos posting = fit_posting(fitted);
  std::printf(
      "Zero bubble, throughput, predicted over measured less one, in %%. Calibrated: %.2f ms "
      "posting.\n\n"
      "| model | p | m | schedule | measured, samples/GPU/s | latency only | calibrated | |\n"
      "|---|---|---|---|---|---|---|---|\n",
      seconds(posting) * 1e3);
  std::vector<double> plain;
  std::vector<double> held_out;
  for (const Measurement& of : all) {
    const bool is_fitted =
        std::any_of(fitted.begin(), fitted.end(), [&of](const Measurement& other) {
          return other.model == of.model && other.micro_batches == of.micro_batches &&
                 other.schedule == of.schedule;
        });
    plain.push_back(throughput_error(of, 0, true));
    const double calibrated = throughput_error(of, posting, false);
    if (!is_fitted) {
      held_out.push_back(calibrated);
    }
    std::printf("| %s | %u | %u | %s | %.2f | %+.1f | %+.1f | %s |\n", of.model.c_str(), of.stages,
                of.micro_batches, of.schedule == ListSchedule::OneFOneB ? "1F1B" : "ZB-1p",
                of.samples_per_s / of.stages, 100 * plain.back(), 100 * calibrated,
                is_fitted ? "fitted" : "");
  }
  const Errors before = errors_of(plain);
  const Errors after = errors_of(held_out);
  std::printf(
      "\nLatency only: mean %.1f, worst %.1f. Calibrated, the %zu rows not fitted: mean "
      "%.1f, worst %.1f.\n\n| model left out | posting from the others, ms | mean error of "
      "its rows, %% | worst |\n|---|---|---|---|\n",
      100 * before.mean, 100 * before.worst, held_out.size(), 100 * after.mean, 100 * after.worst);
  for (const auto& [model, unused] : seen) {
    std::vector<Measurement> others;
    std::copy_if(all.begin(), all.end(), std::back_inserter(others),
                 [&model = model](const Measurement& of) { return of.model != model; });
    const Nanos from_others = fit_posting(others);
    std::vector<double> left;
    for (const Measurement& of : all) {
      if (of.model == model) {
        left.push_back(throughput_error(of, from_others, false));
      }
    }
    std::printf("| %s | %.2f | %.1f | %.1f |\n", model.c_str(), seconds(from_others) * 1e3,
                100 * errors_of(left).mean, 100 * errors_of(left).worst);
  }
}

}  // namespace

int main() {
  print_zero_bubble();
  return 0;
}
