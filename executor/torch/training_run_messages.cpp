// How messages leave a device and arrive at one. Within a process the receiving device fetches
// them; to another process they go through pinned memory and the host, or from GPU to GPU.
#include "executor/torch/gpu_tensors.h"
#include "executor/torch/training_run.h"

namespace xpipe::executor::nn {

/// Whether the other end of the lane is on another process's GPU, and reached from here.
bool TrainingRun::meets_another(const ir::Lane& lane) const {
  return options_.gpu_way.transport != nullptr && options_.is_remote &&
         options_.is_remote(lane.peer);
}

ir::Status TrainingRun::send(const ir::Task& task) {
  const ir::Lane& lane = schedule_->lane(task.lane);
  if (meets_another(lane)) {
    return mailboxes_.send(task, [&](const torch::Tensor& tensor) -> ir::Result<torch::Tensor> {
      const torch::Tensor leaving = dense(tensor);
      const ir::Status sent =
          options_.gpu_way.transport->send(lane.device, lane.peer, leaving.const_data_ptr(),
                                           leaving.nbytes(), options_.gpu_way.stream());
      if (!sent.ok()) {
        return sent.error();
      }
      return torch::empty_like(leaving, torch::kMeta);
    });
  }
  if (options_.is_remote && options_.is_remote(lane.peer)) {
    return mailboxes_.send(task, staged_to_host);
  }
  return mailboxes_.send(task);
}

ir::Status TrainingRun::receive(const ir::Task& task) {
  const torch::Device device = stage_of(task).device();
  const ir::Lane& lane = schedule_->lane(task.lane);
  if (meets_another(lane)) {
    return mailboxes_.receive(task, [&](const torch::Tensor& told) -> ir::Result<torch::Tensor> {
      torch::Tensor arriving =
          torch::empty(told.sizes(), torch::TensorOptions(told.scalar_type()).device(device));
      const ir::Status received =
          options_.gpu_way.transport->receive(lane.peer, lane.device, arriving.mutable_data_ptr(),
                                              arriving.nbytes(), options_.gpu_way.stream());
      if (!received.ok()) {
        return received.error();
      }
      return arriving;
    });
  }
  return mailboxes_.receive(
      task, [device](const torch::Tensor& tensor) { return moved_to(tensor, device); });
}

}  // namespace xpipe::executor::nn
