// The file of a sweep, cut at every byte: what is whole is kept, what is torn is dropped.
#include "app/sweep_file.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "app/set_up_evaluator.h"
#include "app/sweep_axes.h"
#include "app/sweep_inputs.h"
#include <doctest/doctest.h>

#include "policies/register_all.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

/// A policy on one and two stages.
struct SmallSweep {
  SmallSweep() {
    policies::register_all(registry);
    options.push_back(std::make_unique<app::RawOption>(app::RawOption{"--policy", {"gpipe"}}));
    options.push_back(std::make_unique<app::RawOption>(app::RawOption{"--stages", {"1", "2"}}));
    axes = std::make_unique<app::SweepAxes>(app::SweepAxes::of(options).value());
    inputs = std::make_unique<app::SweepInputs>(app::SweepInputs::read(*axes, registry).value());
    header = app::sweep_header(*axes, *inputs);
    app::SetUpEvaluator evaluator(*axes, *inputs);
    for (std::uint64_t i = 0; i < axes->set_ups(); ++i) {
      records.push_back(evaluator.record(i));
    }
  }

  scheduler::PolicyRegistry registry;
  std::vector<std::unique_ptr<app::RawOption>> options;
  std::unique_ptr<app::SweepAxes> axes;
  std::unique_ptr<app::SweepInputs> inputs;
  std::string header;
  std::vector<std::string> records;
};

TEST_CASE("sweep file: cut at any byte it keeps the whole lines before and drops the rest") {
  const SmallSweep sweep;
  REQUIRE(sweep.records.size() == 2);
  std::string whole = sweep.header;
  std::vector<std::size_t> ends = {whole.size()};
  for (const std::string& record : sweep.records) {
    whole += record;
    ends.push_back(whole.size());
  }
  const ScratchFolder folder;
  const std::string path = folder.write("s.jsonl", whole);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    CAPTURE(cut);
    // In place: making a file anew takes milliseconds on some disks.
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << whole;
    std::filesystem::resize_file(path, cut);
    const auto file = app::SweepFile::open(path, *sweep.axes, sweep.header);
    REQUIRE(file.ok());
    std::size_t kept = 0;
    while (kept < sweep.records.size() && ends[kept + 1] <= cut) {
      ++kept;
    }
    CHECK(file.value().records().size() == kept);
    CHECK(read_all(path) == whole.substr(0, ends[kept]));
  }
}

TEST_CASE("sweep file: appends behind what is there, and one process at a time") {
  const SmallSweep sweep;
  const ScratchFolder folder;
  const std::string path = folder.path("s.jsonl");
  {
    auto file = app::SweepFile::open(path, *sweep.axes, sweep.header);
    REQUIRE(file.ok());
    CHECK(file.value().records().empty());
    REQUIRE(file.value().append(sweep.records[0]).ok());
    const auto second = app::SweepFile::open(path, *sweep.axes, sweep.header);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().to_string().find("another process") != std::string::npos);
  }
  auto file = app::SweepFile::open(path, *sweep.axes, sweep.header);
  REQUIRE(file.ok());
  CHECK(file.value().records().size() == 1);
  REQUIRE(file.value().append(sweep.records[1]).ok());
  CHECK(read_all(path) == sweep.header + sweep.records[0] + sweep.records[1]);
}

TEST_CASE("sweep: axes nest as documented, and lists are no values of options that take lists") {
  std::vector<std::unique_ptr<app::RawOption>> options;
  for (const app::RawOption& option :
       {app::RawOption{"--latency-us", {"0,1"}}, app::RawOption{"--partition", {"1,2", "2,1"}},
        app::RawOption{"--set", {"rounding=floor,half-up", "predict=both"}},
        app::RawOption{"--policy", {"xpipe", "gpipe"}}}) {
    options.push_back(std::make_unique<app::RawOption>(option));
  }
  const auto axes = app::SweepAxes::of(options);
  REQUIRE(axes.ok());
  CHECK(axes.value().set_ups() == 16);
  std::vector<std::string> keys;
  for (const app::SweepAxis& axis : axes.value().axes()) {
    keys.push_back(axis.key);
  }
  CHECK(keys == std::vector<std::string>{"policy", "partition", "set.rounding", "set.predict",
                                         "latency_us"});
  CHECK(axes.value().axes()[1].values == std::vector<std::string>{"1,2", "2,1"});
  CHECK(axes.value().values_of(0) == std::vector<std::size_t>{0, 0, 0, 0, 0});
  CHECK(axes.value().values_of(1) == std::vector<std::size_t>{0, 0, 0, 0, 1});
  CHECK(axes.value().values_of(2) == std::vector<std::size_t>{0, 0, 1, 0, 0});
  CHECK(axes.value().values_of(15) == std::vector<std::size_t>{1, 1, 1, 0, 1});
}

}  // namespace
}  // namespace xpipe::app_test
