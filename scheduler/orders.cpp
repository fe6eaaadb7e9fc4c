#include "scheduler/orders.h"

#include <algorithm>

namespace xpipe::scheduler {

std::uint32_t one_f_one_b_warm_up(std::uint32_t stages,
                                  std::uint32_t stage,
                                  std::uint32_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

std::vector<PassOf> one_f_one_b(std::uint32_t stages,
                                std::uint32_t stage,
                                std::uint32_t micro_batches) {
  const std::uint32_t warm_up = one_f_one_b_warm_up(stages, stage, micro_batches);
  std::vector<PassOf> order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (std::uint32_t j = 0; j < warm_up; ++j) {
    order.push_back({ir::Pass::Forward, j});
  }
  for (std::uint32_t j = 0; j < micro_batches; ++j) {
    order.push_back({ir::Pass::Backward, j});
    if (j < micro_batches - warm_up) {
      order.push_back({ir::Pass::Forward, j + warm_up});
    }
  }
  return order;
}

std::uint32_t one_f_one_b_staleness(const PlanRequest& request,
                                    std::uint32_t stage,
                                    std::uint32_t per_step) {
  const std::uint32_t behind = request.depth() - 1 - request.place(stage);
  const std::uint32_t steady = behind / per_step + (behind % per_step != 0 ? 1 : 0);
  const std::uint64_t micro_batches = std::uint64_t{request.micro_batches} * request.mini_batches;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(steady, (micro_batches - 1) / per_step));
}

std::uint32_t one_f_one_b_staleness(const PlanRequest& request, std::uint32_t stage) {
  return one_f_one_b_staleness(request, stage, request.micro_batches);
}

std::uint32_t in_flight_on_replica(const PlanRequest& request,
                                   std::uint32_t stage,
                                   std::uint32_t admitted) {
  const std::uint32_t count = request.replicas_of(stage);
  return admitted / count + (admitted % count != 0 ? 1 : 0);
}

ir::Distance distance_from_start(ir::Distance steady,
                                 ir::Distance backward,
                                 std::uint32_t mini_batch) {
  const std::uint64_t missing = static_cast<std::uint64_t>(mini_batch) + backward;
  return static_cast<ir::Distance>(std::min<std::uint64_t>(steady, missing));
}

bool reads_as_sequential(const std::vector<StagePromise>& stages) {
  return std::all_of(stages.begin(), stages.end(), [](const StagePromise& stage) {
    return stage.forward_staleness == 0 && stage.backward_staleness == 0 &&
           stage.predict_forward == 0 && stage.predict_backward == 0;
  });
}

}  // namespace xpipe::scheduler
