// The fused prediction (executor/prediction_kernel.h) beside the same formula in LibTorch's
// operations and beside the memory's bandwidth, on one thread and one tensor:
//
//   triad      a = b + c * d, as STREAM has it, by plain stores and by stores past the caches; the
//              better of the two is the bandwidth that a share is of. Counted: 12 bytes a number.
//   LibTorch   sqrt_out, add_, addcdiv_out (adam, rmsprop); add_out (momentum): what each needs
//              least is counted, not what the passes move
//   fused      the same into slots of float32, bfloat16 and float16
//
// All take turns, in a changing order; medians over rounds. GB/s are bytes that a prediction must
// read and write, once each, over the time that the thread ran: what else the machine does costs
// bandwidth then, but not the time of others.
//
//   ./dev bench prediction_bandwidth [ROUNDS] [MILLIONS-OF-NUMBERS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <torch/torch.h>

#include "executor/prediction_kernel.h"
#include "executor/torch/fused_prediction.h"
#include "executor/torch/intra_op_threads.h"

namespace {

namespace nn = xpipe::executor::nn;
using xpipe::executor::PredictedTensor;
using xpipe::executor::PredictionStep;
using xpipe::executor::PredictionTypes;

struct Contender {
  std::string name;
  std::int64_t bytes = 0;
  std::function<void()> run;
  std::vector<double> gigabytes_per_s = {};
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void triad(float* a, const float* b, const float* c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    a[i] = b[i] + 3.0F * c[i];
  }
}

void triad_streaming(float* a, const float* b, const float* c, std::int64_t n) {
#if defined(__SSE2__)
  const __m128 three = _mm_set1_ps(3.0F);
  for (std::int64_t i = 0; i + 4 <= n; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(three, _mm_loadu_ps(c + i))));
  }
  _mm_sfence();
#else
  triad(a, b, c, n);
#endif
}

/// Everything that a prediction of one tensor may read, and slots.
struct Memory {
  explicit Memory(std::int64_t n)
      : weights(torch::rand({n})),
        direction(torch::rand({n})),
        squares(torch::rand({n})),
        slot(torch::zeros({n})),
        bfloat16(torch::zeros({n}, torch::kBFloat16)),
        float16(torch::zeros({n}, torch::kFloat16)) {}

  torch::Tensor weights, direction, squares, slot, bfloat16, float16;
};

/// As the prediction was made before it was fused: three passes over the slot, no temporary.
void libtorch_normalized(Memory& memory) {
  torch::sqrt_out(memory.slot, memory.squares);
  memory.slot.add_(1e-8);
  torch::addcdiv_out(memory.slot, memory.weights, memory.direction, memory.slot, -1e-3);
}

std::vector<Contender> contenders(Memory& memory) {
  std::vector<Contender> all;
  const std::int64_t n = memory.weights.numel();
  auto* a = memory.slot.data_ptr<float>();
  const auto* b = memory.weights.data_ptr<float>();
  const auto* c = memory.direction.data_ptr<float>();
  all.push_back({"triad, plain stores", 12 * n, [=] { triad(a, b, c, n); }});
  all.push_back({"triad, streaming stores", 12 * n, [=] { triad_streaming(a, b, c, n); }});
  all.push_back({"LibTorch, adam's formula into float32", 16 * n,
                 [&memory] { libtorch_normalized(memory); }});
  all.push_back({"LibTorch, momentum into float32", 12 * n, [&memory] {
                   torch::add_out(memory.slot, memory.weights, memory.direction, -1e-3);
                 }});
  const xpipe::executor::PredictionKernel kernel = nn::cpu_prediction_kernel();
  for (const auto& [step, formula] :
       {std::pair{PredictionStep::Normalized, "adam"}, {PredictionStep::Linear, "momentum"}}) {
    for (torch::Tensor* slot : {&memory.slot, &memory.bfloat16, &memory.float16}) {
      const std::vector<PredictedTensor> list{{.weights = nn::memory_of(memory.weights),
                                               .direction = nn::memory_of(memory.direction),
                                               .squares = nn::memory_of(memory.squares),
                                               .into = slot->mutable_data_ptr(),
                                               .count = n,
                                               .step = step,
                                               .rate = 1e-3,
                                               .epsilon = 1e-8}};
      const PredictionTypes types{.slot = nn::number_of(slot->scalar_type())};
      const std::string into = slot == &memory.slot       ? "float32"
                               : slot == &memory.bfloat16 ? "bfloat16"
                                                          : "float16";
      all.push_back({std::string("fused, ") + formula + " into " + into,
                     xpipe::executor::prediction_bytes(list, types), [=] { kernel(list, types); }});
    }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int millions = argc > 2 ? std::atoi(argv[2]) : 10;
  if (rounds < 1 || millions < 1) {
    std::fprintf(stderr, "usage: bench_prediction_bandwidth [ROUNDS] [MILLIONS-OF-NUMBERS]\n");
    return 2;
  }
  const torch::NoGradGuard no_grad;
  const nn::IntraOpThreads one(1);
  Memory memory(std::int64_t{millions} * 1'000'000);
  std::vector<Contender> all = contenders(memory);
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t turn = 0; turn < all.size(); ++turn) {
      Contender& contender = all[(turn + static_cast<std::size_t>(round)) % all.size()];
      const double start = thread_seconds();
      contender.run();
      const double seconds = thread_seconds() - start;
      if (round > 0) {  // the first round warms up
        contender.gigabytes_per_s.push_back(static_cast<double>(contender.bytes) / seconds / 1e9);
      }
    }
  }
  const double bandwidth = std::max(median(all[0].gigabytes_per_s), median(all[1].gigabytes_per_s));
  std::printf("%d million numbers, one thread, %d rounds, medians\n\n", millions, rounds);
  std::printf("| contender | GB/s | of the bandwidth | least and most GB/s |\n|---|---|---|---|\n");
  for (const Contender& contender : all) {
    const auto [least, most] =
        std::minmax_element(contender.gigabytes_per_s.begin(), contender.gigabytes_per_s.end());
    const double rate = median(contender.gigabytes_per_s);
    std::printf("| %s | %.2f | %.2f | %.2f to %.2f |\n", contender.name.c_str(), rate,
                rate / bandwidth, *least, *most);
  }
  return 0;
}
