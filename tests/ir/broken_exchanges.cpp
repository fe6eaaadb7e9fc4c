#include <string_view>
#include <vector>

#include "tests/ir/broken_schedules.h"

namespace xpipe::ir::tests {

std::vector<Broken> broken_exchanges() {
  return {
      {"id-range",
       kExchanges,
       {{"0SUMTIED0[1]", "0SUMTIED0[7]"}},
       "0SUMTIED0[7]",
       "peer stage 7 does not exist: expected one of 0 to 1"},
      {"id-range",
       kExchanges,
       {{"0SUMTIED0[1]", "0SUMTIED0[0]"}},
       "0SUMTIED0[0]",
       "shares weights with its own stage: expected another one"},
      {"tie-missing",
       kExchanges,
       {{"1SUMTIED0[0] 1CLIP0", "1CLIP0"},
        {"0B0>1SUMTIED0 1B0>0SUMTIED0", "1B0>0SUMTIED0"},
        {"1SUMTIED0>0CLIP0", "1B0>0CLIP0"}},
       "1SUMTIED0[0]",
       "is missing: expected it, as 0SUMTIED0[1] sums with it"},
      {"tie-order",
       kExchanges,
       {{"1B0>0SUMTIED0 ", ""}},
       "0SUMTIED0[1]",
       "does not wait for 1B0[s0:v0]: expected an edge, as it uses that gradient, too"},
      {"clip-order",
       kExchanges,
       {{"0SUMTIED0[1] 0CLIP0", "0CLIP0 0SUMTIED0[1]"}},
       "0CLIP0",
       "does not wait for 0SUMTIED0[1]: expected it after that"},
      {"clip-order",
       kExchanges,
       {{" 0SUMTIED0>1CLIP0", ""}},
       "1CLIP0",
       "does not wait for 0SUMTIED0[1]: expected an edge"},
      {"clip-order",
       kExchanges,
       {{"1CLIP0 1STEP0[v0]", "1STEP0[v0] 1CLIP0"}},
       "1STEP0[v0]",
       "does not wait for 1CLIP0: expected it after that"},
      {"clip-missing",
       kExchanges,
       {{"1CLIP0 1STEP0[v0]", "1STEP0[v0]"}, {" 0SUMTIED0>1CLIP0", ""}},
       "1CLIP0",
       "is missing: expected it on every stage before each step"},
      {"duplicate-task",
       kExchanges,
       {{"1CLIP0 1STEP0[v0]", "1CLIP0 1CLIP0 1STEP0[v0]"},
        {"0SUMTIED0>1CLIP0", "0SUMTIED0>1CLIP0#0"}},
       "1CLIP0",
       "runs twice: expected it once per stage, replica and mini-batch"},
  };
}

}  // namespace xpipe::ir::tests
