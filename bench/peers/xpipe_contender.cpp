// XPipe's contenders of ./dev bench peers in one process; bench/peers/rounds.py drives it.
//
//   bench_xpipe_contender WORK T CUT HANDOVER CONTENDER...
//
// Contenders: `limit`, `limit-1f1b` (the first stage keeps two micro-batches), and policies by
// name. Answers on stdout, a line of JSON each: first {"ready": true}, then one to each line on
// stdin. Launched as two ranks, it is one stage of its contenders, and rank 0 knows the pace.
//   CONTENDER N   a burst of N mini-batches: the members of Pace; of a limit `stages_s`
//   stop          {"peak_rss_mib": ...} and the end
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>

#include "bench/peers/pipeline.h"
#include "bench/peers/ranks.h"
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "executor/torch/tensor_memory.h"

namespace {

using xpipe::bench::fail;
using xpipe::bench::Limit;
using xpipe::bench::Pace;
using xpipe::bench::Pipeline;

void answer(const nlohmann::json& document) {
  std::cout << document.dump() << std::endl;
}

nlohmann::json json_of(const Pace& pace) {
  return {{"steady_s", pace.steady_s},
          {"whole_s", pace.whole_s},
          {"busy_s", pace.busy_s},
          {"no_overhead_s", pace.no_overhead_s},
          {"prediction_s", pace.prediction_s},
          {"page_faults", pace.page_faults},
          {"losses", pace.losses}};
}

struct Contenders {
  std::map<std::string, std::unique_ptr<Pipeline>> pipelines;
  std::map<std::string, std::unique_ptr<Limit>> limits;
};

void serve(Contenders& contenders) {
  for (std::string line; std::getline(std::cin, line) && line != "stop";) {
    std::istringstream words(line);
    std::string name;
    std::uint32_t mini_batches = 0;
    words >> name >> mini_batches;
    if (const auto limit = contenders.limits.find(name); limit != contenders.limits.end()) {
      const double faults = xpipe::bench::page_faults_so_far();
      const auto stages_s = limit->second->burst(mini_batches);
      answer({{"stages_s", stages_s},
              {"page_faults", (xpipe::bench::page_faults_so_far() - faults) / mini_batches}});
    } else if (const auto pipeline = contenders.pipelines.find(name);
               pipeline != contenders.pipelines.end()) {
      answer(json_of(pipeline->second->burst(mini_batches)));
    } else {
      fail("no contender '" + name + "'");
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  answer({{"peak_rss_mib", usage.ru_maxrss / 1024}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    fail("usage: bench_xpipe_contender WORK T CUT HANDOVER CONTENDER...");
  }
  xpipe::executor::nn::keep_tensor_memory();  // as xpipe train does
  const xpipe::bench::Sizes sizes{.work = argv[1],
                                  .micro_batches = static_cast<std::uint32_t>(std::atoi(argv[2])),
                                  .cut = static_cast<std::uint32_t>(std::atoi(argv[3]))};
  const xpipe::bench::Handover handover = xpipe::bench::read_handover(argv[4]);
  const auto other_rank = xpipe::bench::meet_other_rank();
  Contenders contenders;
  for (int i = 5; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "limit") {
      contenders.limits[name] = std::make_unique<Limit>(sizes, handover, std::array{1U, 1U});
    } else if (name == "limit-1f1b") {
      contenders.limits[name] = std::make_unique<Limit>(sizes, handover, std::array{2U, 1U});
    } else {
      contenders.pipelines[name] =
          std::make_unique<Pipeline>(name, sizes, handover, other_rank.get());
    }
  }
  answer({{"ready", true}});
  serve(contenders);
  if (other_rank) {
    xpipe::bench::require(other_rank->finish());
  }
  return 0;
}
