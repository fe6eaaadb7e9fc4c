#include "traces/weight_counters.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/traces/trace_helpers.h"

namespace xpipe::tests {
namespace {

using traces::CounterSeries;

std::int64_t peak(const CounterSeries& series) {
  std::int64_t most = series.base;
  for (const auto& [time, value] : series.points) {
    most = std::max(most, value);
  }
  return most;
}

const CounterSeries& named(const std::vector<CounterSeries>& all, const std::string& name) {
  const auto it = std::find_if(all.begin(), all.end(),
                               [&name](const CounterSeries& s) { return s.name == name; });
  REQUIRE(it != all.end());
  return *it;
}

TEST_CASE("weight counters: gpipe has one storage, no staleness, a version per step") {
  const ir::Schedule schedule = schedule_for({"gpipe", 2, 2, 3});
  const std::vector<CounterSeries> all = traces::weight_counters(schedule, plan_of(schedule));
  CHECK(all.size() == 8);
  for (const std::string stage : {"stage 0 ", "stage 1 "}) {
    CHECK(named(all, stage + "storages").points.empty());
    CHECK(named(all, stage + "storages").base == 1);
    CHECK(named(all, stage + "staleness forward").points.empty());
    CHECK(named(all, stage + "staleness backward").points.empty());
    CHECK(named(all, stage + "version").points.size() == 3);
    CHECK(peak(named(all, stage + "version")) == 3);
  }
}

TEST_CASE(
    "weight counters: pipedream's stage k holds D - k versions and reads D - 1 - k old ones") {
  const std::uint32_t stages = 4;
  const ir::Schedule schedule = schedule_for({"pipedream", stages, 1, 12});
  const std::vector<CounterSeries> all = traces::weight_counters(schedule, plan_of(schedule));
  for (std::uint32_t k = 0; k < stages; ++k) {
    CAPTURE(k);
    const std::string stage = "stage " + std::to_string(k) + " ";
    CHECK(peak(named(all, stage + "storages")) == stages - k);
    CHECK(peak(named(all, stage + "staleness forward")) == stages - 1 - k);
    CHECK(peak(named(all, stage + "staleness backward")) == stages - 1 - k);
  }
}

TEST_CASE("weight counters: xpipe holds at most three storages whatever the depth") {
  for (std::uint32_t stages : {2U, 4U, 8U}) {
    const ir::Schedule schedule = schedule_for({"xpipe", stages, 2, 20});
    for (const CounterSeries& series : traces::weight_counters(schedule, plan_of(schedule))) {
      if (series.name.ends_with("storages")) {
        CAPTURE(series.name);
        CHECK(peak(series) <= 3);
        CHECK(peak(series) <= schedule.stages[ir::index_of(series.device)].slots);
      }
    }
  }
}

TEST_CASE("weight counters: times do not fall and every series is of a device there is") {
  for (const std::string& policy : policy_names()) {
    const ir::Schedule schedule = schedule_for({policy, 4, 2, 6});
    for (const CounterSeries& series :
         traces::weight_counters(schedule, made_up_run(schedule, 5))) {
      CHECK(ir::index_of(series.device) < 4);
      CHECK(std::is_sorted(series.points.begin(), series.points.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; }));
    }
  }
}

}  // namespace
}  // namespace xpipe::tests
