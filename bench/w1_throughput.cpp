// Throughput of real training, workload W1 (VGG-16 for 3 x 32 x 32, mini-batch 64, cut after unit
// 10 of 21, SGD 0.01 with momentum 0.9, one intra-op thread a stage; the peers' runtime benchmark
// uses the same), on two stages:
//
//   sequential   one stage on one thread, T micro-batches accumulated
//   gpipe, xpipe two stages, a thread each, by the trainer as `xpipe train` runs it
//   limit        both stages at once, each on inputs that are ready: forward, backward, step. A
//                pipeline without bubbles is as fast as the slower of the two.
//   limit in 1F1B order   the same, but the first stage keeps two micro-batches between forward and
//                backward, as 1F1B has it: what that costs in caches no engine can win back
//
// All take turns, in a changing order, so that a noisy machine hits all alike; ratios are taken
// within a round, and medians over rounds. Data are synthetic: random images.
//
//   ./dev bench w1_throughput [ROUNDS] [T] [MINI-BATCHES]
//
// Columns: samples/s in steady state (between the ends of the first and the last but one
// mini-batch), over the whole segment (fill and drain included), and shares of the limit. A
// synchronous pipeline's own limit is T / (T + D - 1) of it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "executor/cpu/cpu_backend.h"
#include "executor/cpu/cpu_pool.h"
#include "executor/inline_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "executor/torch/model.h"
#include "executor/torch/stage.h"
#include "executor/torch/tensor_memory.h"
#include "executor/torch/trainer.h"
#include "policies/register_all.h"
#include "scheduler/compile.h"

namespace {

namespace nn = xpipe::executor::nn;
using xpipe::ir::MicroBatch;
using xpipe::ir::MiniBatch;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBatch = 64;
constexpr std::uint32_t kCut = 10;

struct Sizes {
  std::uint32_t rounds = 7;
  std::uint32_t micro_batches = 4;
  std::uint32_t mini_batches = 8;
};

/// A folder in CIFAR-10's binary format with random images, five equal files and a small test set.
std::filesystem::path make_images(std::uint32_t samples) {
  std::string name = (std::filesystem::temp_directory_path() / "xpipe-w1-XXXXXX").string();
  XPIPE_CHECK(mkdtemp(name.data()) != nullptr) << name;
  std::mt19937 random(1);
  const auto write = [&](const std::string& file, std::uint32_t count) {
    std::ofstream out(std::filesystem::path(name) / file, std::ios::binary);
    std::string image(1 + 3 * 32 * 32, '\0');
    for (std::uint32_t i = 0; i < count; ++i) {
      for (char& byte : image) {
        byte = static_cast<char>(random());
      }
      image[0] = static_cast<char>(random() % 10);
      out << image;
    }
  };
  for (int i = 1; i <= 5; ++i) {
    write("data_batch_" + std::to_string(i) + ".bin",
          samples / 5 + (static_cast<std::uint32_t>(i) <= samples % 5 ? 1 : 0));
  }
  write("test_batch.bin", 8);
  return name;
}

/// Samples a second of one burst.
struct Rate {
  double steady = 0.0;
  double whole = 0.0;
};

template <typename T>
T value_of(xpipe::ir::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    std::exit(5);
  }
  return std::move(result).value();
}

/// A policy, trained.
class Training {
 public:
  Training(const std::string& policy,
           std::uint32_t stages,
           const Sizes& sizes,
           const std::filesystem::path& data) {
    nn::TrainConfig config;
    config.model = "vgg16";
    config.data = data.string();
    config.stages = stages;
    config.partition =
        stages == 1 ? std::vector<std::uint32_t>{} : std::vector<std::uint32_t>{kCut, 21 - kCut};
    config.micro_batches = sizes.micro_batches;
    config.batch_size = kBatch;
    config.optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.01, .momentum = 0.9};
    trainer_ = std::make_unique<nn::Trainer>(value_of(nn::Trainer::create(config)));
    xpipe::scheduler::PolicyRegistry registry;
    xpipe::policies::register_all(registry);
    source_ = [found = *value_of(registry.find(policy)), stages,
               graph = trainer_->facts().stage_graph](std::uint32_t micro_batches,
                                                      std::uint32_t mini_batches) {
      return xpipe::scheduler::compile(found,
                                       {.stages = stages,
                                        .micro_batches = micro_batches,
                                        .mini_batches = mini_batches,
                                        .options = {}},
                                       graph);
    };
    if (stages == 1) {
      backend_ = std::make_unique<xpipe::executor::InlineBackend>();
    } else {
      pool_ = value_of(xpipe::executor::CpuPool::create(
          {.devices = stages,
           .on_thread_start = [](xpipe::ir::DeviceId) { nn::set_intra_op_threads(1); }}));
      backend_ = std::make_unique<xpipe::executor::CpuBackend>(*pool_);
    }
  }

  Rate burst() {
    const nn::TrainResult result = value_of(trainer_->train(source_, *backend_));
    const auto& records = result.mini_batches;
    const std::size_t last = records.size() - 2;
    const double steady_ns = static_cast<double>(records[last].ended - records[0].ended);
    return {1e9 * kBatch * static_cast<double>(last) / steady_ns, result.epochs[0].samples_per_s};
  }

 private:
  std::unique_ptr<nn::Trainer> trainer_;
  nn::ScheduleSource source_;
  std::unique_ptr<xpipe::executor::CpuPool> pool_;
  std::unique_ptr<xpipe::executor::Backend> backend_;
};

/// Both stages at once, neither waiting for the other. Stage k keeps `in_flight[k]` micro-batches
/// between forward and backward: 1 is the fastest a stage can be, D - k is what 1F1B asks of it.
class Limit {
 public:
  Limit(const Sizes& sizes, std::array<std::uint32_t, 2> in_flight)
      : sizes_(sizes), in_flight_(in_flight) {
    nn::set_intra_op_threads(1);
    const nn::Model model = value_of(nn::build_model("vgg16", {}, {3, 32, 32}, 10, 0));
    const auto layers = nn::cut(model, {kCut, 21 - kCut});
    const nn::StageOptions options{
        .optimizer = {.kind = nn::OptimizerKind::Sgd, .learning_rate = 0.01, .momentum = 0.9}};
    for (std::size_t k = 0; k < 2; ++k) {
      stages_.push_back(std::make_unique<nn::Stage>(layers[k], k > 0, options));
    }
    const auto samples = static_cast<std::int64_t>(kBatch / sizes.micro_batches);
    input_ = torch::randn({samples, 3, 32, 32});
    middle_ = stages_[0]->evaluate(input_);
    labels_ = torch::randint(10, {samples}, torch::kLong);
  }

  /// Of the slower stage, while the other works, too.
  Rate burst() {
    double seconds[2] = {0.0, 0.0};
    std::thread other([&] { seconds[1] = run(1); });
    seconds[0] = run(0);
    other.join();
    const double rate = kBatch * sizes_.mini_batches / std::max(seconds[0], seconds[1]);
    return {rate, rate};
  }

 private:
  double run(std::size_t k) {
    nn::set_intra_op_threads(1);
    nn::Stage& stage = *stages_[k];
    stage.begin_segment(1);
    const auto begin = Clock::now();
    const std::uint32_t total = sizes_.mini_batches * sizes_.micro_batches;
    const std::uint32_t ahead = in_flight_[k] - 1;
    xpipe::ir::WeightRead newest;
    for (std::uint32_t j = 0; j < total + ahead; ++j) {
      if (j < total) {
        forward(k, MicroBatch{j}, newest);
      }
      if (j < ahead) {
        continue;
      }
      value_of(stage.backward(MicroBatch{j - ahead}, k == 0 ? middle_ : torch::Tensor(), newest));
      if ((j - ahead + 1) % sizes_.micro_batches == 0) {
        XPIPE_CHECK(
            stage.step({.mini_batch = MiniBatch{newest.version}, .version = newest.version}).ok())
            << "step " << newest.version;
        ++newest.version;
      }
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void forward(std::size_t k, MicroBatch j, const xpipe::ir::WeightRead& weights) {
    if (k == 0) {
      value_of(stages_[0]->forward(j, input_, weights));
    } else {
      value_of(stages_[1]->forward_loss(j, middle_, labels_, 1.0 / sizes_.micro_batches, weights));
    }
  }

  Sizes sizes_;
  std::array<std::uint32_t, 2> in_flight_;
  std::vector<std::unique_ptr<nn::Stage>> stages_;
  torch::Tensor input_;
  torch::Tensor middle_;
  torch::Tensor labels_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

int main(int argc, char** argv) {
  nn::keep_tensor_memory();  // as xpipe train does
  Sizes sizes;
  std::uint32_t* const arguments[] = {&sizes.rounds, &sizes.micro_batches, &sizes.mini_batches};
  for (int i = 1; i < argc && i <= 3; ++i) {
    *arguments[i - 1] = static_cast<std::uint32_t>(std::max(1, std::atoi(argv[i])));
  }
  sizes.mini_batches = std::max<std::uint32_t>(3, sizes.mini_batches);
  const std::filesystem::path data = make_images(kBatch * sizes.mini_batches);
  Training sequential("gpipe", 1, sizes, data);
  Training gpipe("gpipe", 2, sizes, data);
  Training xpipe("xpipe", 2, sizes, data);
  Limit in_order(sizes, {2, 1});
  Limit limit(sizes, {1, 1});
  const std::vector<std::pair<const char*, std::function<Rate()>>> contenders = {
      {"sequential", [&] { return sequential.burst(); }},
      {"gpipe", [&] { return gpipe.burst(); }},
      {"xpipe", [&] { return xpipe.burst(); }},
      {"limit in 1F1B order", [&] { return in_order.burst(); }},
      {"limit", [&] { return limit.burst(); }}};
  std::vector<std::vector<Rate>> rates(contenders.size());
  for (std::uint32_t round = 0; round <= sizes.rounds; ++round) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t i = (turn + round) % contenders.size();
      const Rate rate = contenders[i].second();
      if (round > 0) {  // the first round warms up
        rates[i].push_back(rate);
      }
    }
    std::fprintf(stderr, "round %u of %u\n", round, sizes.rounds);
  }
  std::filesystem::remove_all(data);

  const double ideal = static_cast<double>(sizes.micro_batches) / (sizes.micro_batches + 1);
  std::printf("W1, T = %u, %u mini-batches of %u, %u rounds, medians\n\n", sizes.micro_batches,
              sizes.mini_batches, kBatch, sizes.rounds);
  std::printf(
      "| contender | samples/s steady | whole | of the limit, steady | whole | least and "
      "most of the limit, steady |\n|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    std::vector<double> steady;
    std::vector<double> whole;
    std::vector<double> steady_share;
    std::vector<double> whole_share;
    for (std::size_t round = 0; round < rates[i].size(); ++round) {
      const double bound = rates.back()[round].steady;
      steady.push_back(rates[i][round].steady);
      whole.push_back(rates[i][round].whole);
      steady_share.push_back(rates[i][round].steady / bound);
      whole_share.push_back(rates[i][round].whole / bound);
    }
    const auto [least, most] = std::minmax_element(steady_share.begin(), steady_share.end());
    std::printf("| %s | %.1f | %.1f | %.3f | %.3f | %.3f to %.3f |\n", contenders[i].first,
                median(steady), median(whole), median(steady_share), median(whole_share), *least,
                *most);
  }
  std::printf("\ngpipe's own limit is T / (T + D - 1) = %.3f of the limit\n", ideal);
  return 0;
}
