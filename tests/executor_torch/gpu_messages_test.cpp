// Training in two processes on the gpu backend gives the bits of one process, whichever way the
// messages take: the GPUs are fake (tests/executor/fake_gpu.h), the tensors are on the CPU, and the
// transport is memory; what decides and what is sent is real.
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/engine.h"
#include "executor/gpu_backend.h"
#include "executor/torch/intra_op_threads.h"
#include "tests/executor/fake_gpu.h"
#include "tests/executor_torch/torch_doctest.h"
#include "tests/executor_torch/toy.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {
namespace {

using executor::GpuStream;
using executor::Processes;
using ir::DeviceId;

/// What the ranks of a test have sent each other.
struct Wires {
  std::mutex mutex;
  std::map<std::pair<DeviceId, DeviceId>, std::deque<std::vector<std::byte>>> sent;
  std::size_t bytes = 0;
};

class MemoryTransport final : public executor::GpuTransport {
 public:
  explicit MemoryTransport(Wires& wires) : wires_(wires) {}

  ir::Status send(DeviceId from,
                  DeviceId to,
                  const void* data,
                  std::size_t bytes,
                  GpuStream /*stream*/) override {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::lock_guard lock(wires_.mutex);
    wires_.sent[{from, to}].emplace_back(begin, begin + bytes);
    wires_.bytes += bytes;
    return {};
  }

  ir::Status receive(
      DeviceId from, DeviceId to, void* data, std::size_t bytes, GpuStream /*stream*/) override {
    const std::lock_guard lock(wires_.mutex);
    auto& sent = wires_.sent[{from, to}];
    if (sent.empty() || sent.front().size() != bytes) {
      return ir::make_error(ir::ErrorKind::Internal, "wrong-meeting", "",
                            "a receive of " + std::to_string(bytes) + " bytes meets no such send");
    }
    std::memcpy(data, sent.front().data(), bytes);
    sent.pop_front();
    return {};
  }

  ir::Status check() override { return {}; }

  void abort() override {}

 private:
  Wires& wires_;
};

enum class Way : std::uint8_t { Host, GpuToGpu };

/// Weights of each stage after all segments, trained by `ranks` processes.
std::vector<std::vector<torch::Tensor>> trained_by_ranks(const ir::Schedule& schedule,
                                                         const ToyTraining& training,
                                                         std::uint32_t ranks,
                                                         Way way,
                                                         Wires& wires) {
  std::vector<std::vector<torch::Tensor>> weights(schedule.stages.size());
  run_ranks(ranks, [&](Processes& processes) {
    const nn::IntraOpThreads one(1);  // of this thread: with more, bits are not the same
    processes.set_devices(schedule.devices);
    FakeGpu gpu({.gpus = 2, .looks = 1});
    executor::GpuBackend backend(gpu, {.device_map = {0, 1}, .ahead = 4});
    MemoryTransport transport(wires);
    nn::RunOptions options;
    options.is_remote = [&](DeviceId device) { return !processes.is_local(device); };
    if (way == Way::GpuToGpu) {
      backend.set_transport(&transport);
      options.gpu_way = {.transport = &transport, .stream = [&] { return backend.current(); }};
    }
    const auto toy = toy_run(schedule, training, std::move(options));
    processes.set_mail(&toy->run->mail());
    for (std::uint32_t epoch = 0; epoch < training.segments; ++epoch) {
      toy->run->begin_segment(toy->schedule, toy_segment(training, epoch));
      const auto ran = executor::run(toy->schedule, toy->run->handlers(), backend, &processes);
      REQUIRE_MESSAGE(ran.ok(), ran.error().to_string());
      CHECK(toy->run->mailboxes().bytes() == 0);
    }
    REQUIRE(processes.finish().ok());
    for (std::size_t k = 0; k < schedule.stages.size(); ++k) {
      if (processes.is_local(schedule.stages[k].device())) {
        for (const torch::Tensor& weight : toy->run->stages()[k].weights()) {
          weights[k].push_back(weight.detach().clone());
        }
      }
    }
  });
  return weights;
}

TEST_CASE(
    "gpu messages: two processes on GPUs give the bits of one, through the host and past it") {
  const nn::IntraOpThreads one(1);
  ToyTraining training;
  training.optimizer = {.kind = nn::OptimizerKind::Adam, .learning_rate = 0.01};
  for (const std::string policy : {"gpipe", "xpipe", "pipedream", "spectrain"}) {
    CAPTURE(policy);
    const std::uint32_t t = policy == "gpipe" || policy == "xpipe" ? 2 : 1;
    const ir::Schedule schedule =
        compiled(policy, 4, t, static_cast<std::uint32_t>(training.mini_batches.size()));
    const std::vector<torch::Tensor> expected = trained(schedule, training);
    for (const Way way : {Way::Host, Way::GpuToGpu}) {
      for (const std::uint32_t ranks : {2U, 4U}) {
        CAPTURE(ranks);
        Wires wires;
        std::vector<torch::Tensor> found;
        for (const auto& stage : trained_by_ranks(schedule, training, ranks, way, wires)) {
          found.insert(found.end(), stage.begin(), stage.end());
        }
        CHECK(same_bits(found, expected));
        CHECK((wires.bytes > 0) == (way == Way::GpuToGpu));
        for (const auto& [devices, sent] : wires.sent) {
          CHECK(sent.empty());
        }
      }
    }
  }
}

TEST_CASE("gpu messages: a message that goes past the host is told by its sizes and type") {
  const torch::Tensor tensor = torch::ones({3, 5}, torch::kBFloat16);
  const executor::PackedTensor packed = nn::pack(torch::empty_like(tensor, torch::kMeta));
  CHECK(packed.bytes == 0);
  CHECK(packed.data == nullptr);
  const auto told = nn::unpack(packed);
  REQUIRE(told.ok());
  CHECK(told.value().is_meta());
  CHECK((told.value().sizes() == tensor.sizes()));
  CHECK((told.value().scalar_type() == torch::kBFloat16));
}

}  // namespace
}  // namespace xpipe::tests
