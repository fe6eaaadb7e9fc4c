#include "bench/peers/no_overhead.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ir/ids.h"

namespace xpipe::bench {

using ir::index_of;

ir::Timeline without_overhead(const ir::Schedule& schedule, const ir::Timeline& run) {
  std::vector<std::vector<ir::TaskId>> awaited(schedule.tasks.size());
  for (const ir::Edge& edge : schedule.edges) {
    awaited[index_of(edge.to)].push_back(edge.from);
  }
  ir::Timeline ideal = run;
  std::vector<bool> has_ended(schedule.tasks.size(), false);
  std::vector<std::size_t> next(schedule.lanes.size(), 0);
  std::vector<ir::Nanos> free_at(schedule.lanes.size(), 0);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
      const std::vector<ir::TaskId>& order = schedule.lanes[lane].order;
      for (; next[lane] < order.size(); ++next[lane]) {
        const std::size_t task = index_of(order[next[lane]]);
        if (!std::ranges::all_of(awaited[task],
                                 [&](ir::TaskId from) { return has_ended[index_of(from)]; })) {
          break;
        }
        ir::Span& span = ideal.spans[task];
        const ir::Nanos length = span.end - span.start;
        span.start = free_at[lane];
        for (const ir::TaskId from : awaited[task]) {
          span.start = std::max(span.start, ideal.spans[index_of(from)].end);
        }
        span.end = free_at[lane] = span.start + length;
        has_ended[task] = true;
        goes_on = true;
      }
    }
  }
  return ideal;
}

}  // namespace xpipe::bench
