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
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
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

/// What a profile leaves out, one constant for all rows.
struct Calibration {
  /// What each forward and each backward adds to its stage for posting its message and waiting for
  /// the device.
  Nanos posting = 0;
  double slowness = 1.0;  ///< all compute takes so many times longer
};

/// Predicted over measured throughput less one. Without a calibration nothing but the profile and
/// the latency counts.
double throughput_error(const Measurement& of, const std::optional<Calibration>& calibration) {
  static std::map<std::tuple<ListSchedule, std::uint32_t, std::uint32_t>, ir::Schedule> compiled;
  const std::tuple key(of.schedule, of.stages, of.micro_batches);
  if (!compiled.contains(key)) {
    compiled[key] = must(list_schedule(of.schedule, of.stages, of.micro_batches));
  }
  scheduler::StageCosts stage = of.stage;
  if (calibration) {
    for (Nanos* time : {&stage.forward, &stage.backward_input, &stage.backward_weight}) {
      *time = std::llround(static_cast<double>(*time) * calibration->slowness);
    }
    stage.forward += calibration->posting;
    stage.backward_input += calibration->posting;
    stage.step = of.step;
  }
  scheduler::CostModel costs =
      scheduler::uniform_costs(of.stages, of.stages, 0, 0, {.latency = of.communication});
  costs.stages.assign(of.stages, stage);
  const Nanos makespan = ir::makespan(simulator::simulate(compiled[key], costs));
  return of.samples / seconds(makespan) / of.samples_per_s - 1;
}

/// The candidate with the smallest sum of squared errors.
Calibration fit(const std::vector<Measurement>& measured,
                const std::vector<Calibration>& candidates) {
  double least = std::numeric_limits<double>::infinity();
  Calibration best;
  for (const Calibration& candidate : candidates) {
    double sum = 0;
    for (const Measurement& of : measured) {
      sum += std::pow(throughput_error(of, candidate), 2);
    }
    if (sum < least) {
      least = sum;
      best = candidate;
    }
  }
  return best;
}

/// To 20 us up to 2 ms, and to 0.1 % up to 10 %.
std::vector<Calibration> candidates_of(bool posting) {
  std::vector<Calibration> candidates;
  for (int i = 0; i <= 100; ++i) {
    candidates.push_back(posting ? Calibration{.posting = Nanos{i} * 20'000}
                                 : Calibration{.slowness = 1 + i * 0.001});
  }
  return candidates;
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
  const Calibration posting = fit(fitted, candidates_of(true));
  const Calibration slower = fit(fitted, candidates_of(false));
  std::printf(
      "Zero bubble, throughput, predicted over measured less one, in %%. Posting: %.2f ms a "
      "message; "
      "slower compute: %.1f %%.\n\n"
      "| model | p | m | schedule | measured, samples/GPU/s | latency only | posting | slower "
      "compute | |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      seconds(posting.posting) * 1e3, 100 * (slower.slowness - 1));
  std::vector<double> plain;
  std::vector<double> held_out;
  std::vector<double> held_out_slower;
  for (const Measurement& of : all) {
    const bool is_fitted =
        std::any_of(fitted.begin(), fitted.end(), [&of](const Measurement& other) {
          return other.model == of.model && other.micro_batches == of.micro_batches &&
                 other.schedule == of.schedule;
        });
    plain.push_back(throughput_error(of, std::nullopt));
    const double posted = throughput_error(of, posting);
    const double slowed = throughput_error(of, slower);
    if (!is_fitted) {
      held_out.push_back(posted);
      held_out_slower.push_back(slowed);
    }
    std::printf("| %s | %u | %u | %s | %.2f | %+.1f | %+.1f | %+.1f | %s |\n", of.model.c_str(),
                of.stages, of.micro_batches,
                of.schedule == ListSchedule::OneFOneB ? "1F1B" : "ZB-1p",
                of.samples_per_s / of.stages, 100 * plain.back(), 100 * posted, 100 * slowed,
                is_fitted ? "fitted" : "");
  }
  const auto text = [](const std::vector<double>& errors) {
    const Errors of = errors_of(errors);
    char line[48];
    std::snprintf(line, sizeof(line), "mean %.1f, worst %.1f", 100 * of.mean, 100 * of.worst);
    return std::string(line);
  };
  std::printf(
      "\nLatency only: %s. The %zu rows not fitted: posting %s; slower compute %s.\n\n"
      "| model left out | posting from the others, ms | mean error of its rows, %% | worst |\n"
      "|---|---|---|---|\n",
      text(plain).c_str(), held_out.size(), text(held_out).c_str(), text(held_out_slower).c_str());
  for (const auto& [model, unused] : seen) {
    std::vector<Measurement> others;
    std::copy_if(all.begin(), all.end(), std::back_inserter(others),
                 [&model = model](const Measurement& of) { return of.model != model; });
    const Calibration from_others = fit(others, candidates_of(true));
    std::vector<double> left;
    for (const Measurement& of : all) {
      if (of.model == model) {
        left.push_back(throughput_error(of, from_others));
      }
    }
    std::printf("| %s | %.2f | %.1f | %.1f |\n", model.c_str(), seconds(from_others.posting) * 1e3,
                100 * errors_of(left).mean, 100 * errors_of(left).worst);
  }
}

}  // namespace

int main() {
  try {
    print_zero_bubble();
    return 0;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "fidelity_zero_bubble: %s\n", fault.what());
    return 1;
  }
}
