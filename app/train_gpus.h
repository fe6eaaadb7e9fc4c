// The GPUs of an `xpipe train` that several processes run, or that its transport needs: which
// rank's devices are on which, and the NCCL connections between them.
#pragma once

#include <memory>

#include "app/gpu_device.h"
#include "app/train_arguments.h"

#include "executor/gpu_transport.h"
#include "executor/peers.h"
#include "executor/processes/launch_environment.h"
#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::app {

/// Before anybody is met: whether NCCL can join the ranks (field case K4). Errors: Usage, with a
/// way out.
[[nodiscard]] ir::Status check_nccl(const executor::LaunchEnvironment& launch,
                                    const TrainRequest& request);

/// With --device cuda: completes config.compute.gpus, for GpuDevice::open(). Errors: Usage
/// "no-cuda-device".
[[nodiscard]] ir::Status place_gpus(const executor::LaunchEnvironment& launch,
                                    TrainRequest& request);

/// Whether `schedule` can run over NCCL. Errors: Usage "transfers-cross".
[[nodiscard]] ir::Status check_channels(const ir::Schedule& schedule, const executor::Peers& peers);

/// The connections of one rank; must outlive the training.
class NcclWay {
 public:
  /// Whether this build has NCCL. Errors: Usage "no-nccl".
  [[nodiscard]] static ir::Status check_built();

  /// Meets the ranks that `schedule` sends to or receives from; all call it. Errors: those of
  /// executor/nccl; without it, Usage.
  [[nodiscard]] static ir::Result<std::unique_ptr<NcclWay>> connect(const ir::Schedule& schedule,
                                                                    executor::Peers& peers,
                                                                    const TrainRequest& request);

  NcclWay() = default;
  NcclWay(const NcclWay&) = delete;
  NcclWay& operator=(const NcclWay&) = delete;
  virtual ~NcclWay() = default;

  [[nodiscard]] virtual executor::GpuTransport& transport() = 0;
};

}  // namespace xpipe::app
