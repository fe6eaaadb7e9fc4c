#include "ir/timeline.h"

#include <algorithm>

namespace xpipe::ir {

Nanos makespan(const Timeline& timeline) {
  Nanos last = 0;
  for (const Span& span : timeline.spans) {
    last = std::max(last, span.end);
  }
  return last;
}

}  // namespace xpipe::ir
