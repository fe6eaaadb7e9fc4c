#include "executor/torch/timing_samples.h"

#include <cstddef>
#include <vector>

#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {
namespace {

namespace nn = executor::nn;
using ir::Nanos;

TEST_CASE("timing samples: the median of an even number lies between the two in the middle") {
  CHECK(nn::summarize({7}).median == 7);
  CHECK(nn::summarize({9, 1, 5}).median == 5);
  CHECK(nn::summarize({4, 1, 9, 7}).median == 6);  // 5.5 goes up
  CHECK(nn::summarize({0, 0}).median == 0);
}

TEST_CASE("timing samples: a start-up that was timed leaves the median and is told") {
  // Microseconds of an embedding's first four calls, as a published profile had them.
  const std::vector<Nanos> all{35'479'400, 550'200, 549'800, 550'000};
  CHECK(nn::summarize(all).median == 550'100);
  CHECK(nn::summarize(all).first_is_off);
  const std::vector<Nanos> warm(all.begin() + 1, all.end());
  CHECK(nn::summarize(warm).median == 550'000);
  CHECK_FALSE(nn::summarize(warm).first_is_off);
}

TEST_CASE("timing samples: the spread lies between the quartiles, an outlier leaves it") {
  CHECK(nn::summarize({100, 100, 100, 100}).spread == 0.0);
  CHECK(nn::summarize({90, 100, 100, 110, 9000}).spread == doctest::Approx(0.1));
  CHECK(nn::summarize({0, 0, 0}).spread == 0.0);
}

}  // namespace
}  // namespace xpipe::tests
