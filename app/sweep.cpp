#include "app/sweep.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/exit_status.h"
#include "app/interrupt.h"
#include "app/progress.h"
#include "app/set_up_evaluator.h"
#include "app/sweep_file.h"
#include "app/sweep_inputs.h"
#include "app/sweep_table.h"
#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

namespace xpipe::app {

namespace {

/// Neighbours share workload and schedule, so they stay together; not so many that an interrupted
/// sweep loses much or threads wait for the last one.
constexpr std::uint64_t kSetUpsInAChunk = 32;
/// Chunks between the first unfinished one and the last begun, by thread.
constexpr std::size_t kChunksInFlight = 4;
constexpr std::size_t kBestShown = 10;
constexpr std::size_t kFaultsShown = 10;

constexpr const char* kGroup = "Sweep";

/// Set-ups [begin, end) with their records.
struct Chunk {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::string> records;
};

/// Where records go: the file, stdout, or the table only.
class Records {
 public:
  Records(const SweepAxes& axes, SweepFile* file, bool json)
      : file_(file), json_(json), table_(axes) {}

  ir::Status take(const std::vector<std::string>& records) {
    std::string lines;
    for (const std::string& record : records) {
      lines += record;
      table_.add(record);
    }
    if (json_) {
      std::cout << lines << std::flush;
    }
    return file_ != nullptr ? file_->append(lines) : ir::Status();
  }

  void take_from_file(const std::string& record) { table_.add(record); }

  [[nodiscard]] const SweepTable& table() const { return table_; }

 private:
  SweepFile* file_;
  bool json_;
  SweepTable table_;
};

/// Answers set-ups [first, axes.set_ups()) on `threads` threads, in order. Stops early on SIGINT.
ir::Status answer_all(const SweepAxes& axes,
                      const SweepInputs& inputs,
                      std::uint64_t first,
                      std::uint32_t threads,
                      Records& records) {
  Progress progress("sweep", axes.set_ups());
  tbb::enumerable_thread_specific<SetUpEvaluator> evaluators(
      [&] { return SetUpEvaluator(axes, inputs); });
  ir::Status failure;
  const std::uint64_t left = axes.set_ups() - first;
  const std::uint64_t size =
      std::clamp<std::uint64_t>(left / (std::uint64_t{8} * threads), 1, kSetUpsInAChunk);
  std::uint64_t next = first;
  const auto deal = [&](tbb::flow_control& control) -> std::shared_ptr<Chunk> {
    if (next == axes.set_ups() || InterruptGuard::interrupted()) {
      control.stop();
      return nullptr;
    }
    auto chunk = std::make_shared<Chunk>();
    chunk->begin = next;
    chunk->end = next = std::min(next + size, axes.set_ups());
    return chunk;
  };
  const auto answer = [&](std::shared_ptr<Chunk> chunk) {
    SetUpEvaluator& evaluator = evaluators.local();
    for (std::uint64_t i = chunk->begin; i < chunk->end && !InterruptGuard::interrupted(); ++i) {
      chunk->records.push_back(evaluator.record(i));
    }
    return chunk;
  };
  bool cut_short = false;
  const auto tell = [&](const std::shared_ptr<Chunk>& chunk) {
    if (!failure.ok() || cut_short) {
      return;  // nothing may stand behind a gap
    }
    failure = records.take(chunk->records);
    const std::uint64_t done = chunk->begin + chunk->records.size();
    cut_short = done < chunk->end;
    progress.update(done, fmt::format("{} of {} set-ups", done, axes.set_ups()));
  };
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    tbb::parallel_pipeline(
        kChunksInFlight * threads,
        tbb::make_filter<void, std::shared_ptr<Chunk>>(tbb::filter_mode::serial_in_order, deal) &
            tbb::make_filter<std::shared_ptr<Chunk>, std::shared_ptr<Chunk>>(
                tbb::filter_mode::parallel, answer) &
            tbb::make_filter<std::shared_ptr<Chunk>, void>(tbb::filter_mode::serial_in_order,
                                                           tell));
  });
  return failure;
}

void tell_faults(const SweepTable& table) {
  const std::vector<std::string> faults = table.faults();
  for (std::size_t i = 0; i < std::min(faults.size(), kFaultsShown); ++i) {
    std::cerr << "xpipe: " << faults[i] << '\n';
  }
  if (faults.size() > kFaultsShown) {
    std::cerr << fmt::format("xpipe: and {} more faults; the records have them all\n",
                             faults.size() - kFaultsShown);
  }
}

}  // namespace

void add_sweep_options(CLI::App& command, SweepArguments& arguments) {
  add_raw_options(command, arguments.options);
  add_sweep_help(command);
  // The help's own are for a line without --sweep; here they mean something.
  for (const char* name : {"--sweep", "--output", "--threads"}) {
    command.remove_option(command.get_option(name));
  }
  command.add_flag_callback(
             "--sweep", [] {}, "simulate every combination of the options' values")
      ->group(kGroup);
  command.add_flag("--json", arguments.json, "print the records as JSON lines instead of a table");
  text(command, "-o,--output", arguments.output, "FILE",
       "write the records here as JSON lines; the same command again goes on where it ended")
      ->group(kGroup);
  whole_number(command, "--threads", arguments.threads, 1, 1024,
               "threads (default: all cores); the output does not depend on it");
  command.get_option("--threads")->group(kGroup);
}

void add_sweep_help(CLI::App& command) {
  command
      .add_flag_callback(
          "--sweep", [] {},
          "simulate every combination: each option may have several values, joined by commas "
          "(--partition, --cluster and the like: given several times)")
      ->group(kGroup);
  const auto refuse = [&command](const char* names, const char* type, const char* help) {
    command
        .add_option(names, CLI::callback_t([names](const CLI::results_t&) -> bool {
                      throw CLI::ValidationError(names, "is an option of --sweep; add it");
                    }),
                    help)
        ->type_name(type)
        ->group(kGroup);
  };
  refuse("-o,--output", "FILE",
         "with --sweep: write the records here as JSON lines; the same command again goes on "
         "where it ended");
  refuse("--threads", "N", "with --sweep: threads (default: all cores)");
}

int run_sweep(const SweepArguments& arguments, const scheduler::PolicyRegistry& registry) {
  if (arguments.json && !arguments.output.empty()) {
    return report_error(ir::make_error(ir::ErrorKind::Usage, "options", "--json",
                                       "prints the records that -o writes; drop one"));
  }
  const ir::Result<SweepAxes> axes = SweepAxes::of(arguments.options);
  if (!axes.ok()) {
    return report_error(axes.error());
  }
  const ir::Result<SweepInputs> inputs = SweepInputs::read(axes.value(), registry);
  if (!inputs.ok()) {
    return report_error(inputs.error());
  }
  const std::string header = sweep_header(axes.value(), inputs.value());
  std::optional<SweepFile> file;
  if (!arguments.output.empty()) {
    ir::Result<SweepFile> opened = SweepFile::open(arguments.output, axes.value(), header);
    if (!opened.ok()) {
      return report_error(opened.error());
    }
    file.emplace(std::move(opened).value());
  }
  if (axes.value().find("--micro-batches") == nullptr) {
    print_note(
        "--micro-batches is not given: T = 1, which leaves a synchronous pipeline without "
        "parallelism");
  }
  if (arguments.json) {
    std::cout << header;
  }
  Records records(axes.value(), file.has_value() ? &*file : nullptr, arguments.json);
  if (file.has_value()) {
    for (const std::string& record : file->records()) {
      records.take_from_file(record);
    }
    if (!file->records().empty()) {
      print_note(fmt::format("{} has {} of {} set-ups already", arguments.output,
                             file->records().size(), axes.value().set_ups()));
    }
  }
  const InterruptGuard guard;
  const ir::Status status = answer_all(
      axes.value(), inputs.value(), records.table().size(),
      arguments.threads.value_or(static_cast<std::uint32_t>(tbb::info::default_concurrency())),
      records);
  if (!status.ok()) {
    return report_error(status.error());
  }
  if (records.table().size() < axes.value().set_ups()) {
    std::cerr << fmt::format("xpipe: interrupted after {} of {} set-ups{}\n",
                             records.table().size(), axes.value().set_ups(),
                             file.has_value() ? "; the same command goes on from there" : "");
    return InterruptGuard::exit_status();
  }
  if (!arguments.json) {
    const bool only_best = file.has_value() && records.table().size() > kBestShown;
    std::cout << fmt::format("{} set-ups{}\n\n", axes.value().set_ups(),
                             only_best ? fmt::format(" in {}; the fastest", arguments.output) : "")
              << records.table().to_string(only_best ? std::optional(kBestShown) : std::nullopt);
  }
  tell_faults(records.table());
  return records.table().worst_status();
}

}  // namespace xpipe::app
