#include "app/train_gpus.h"

namespace xpipe::app {

ir::Status NcclWay::check_built() {
  return ir::make_error(ir::ErrorKind::Usage, "no-nccl", "--transport",
                        "nccl: this xpipe was built without NCCL; build it where nvcc and nccl.h "
                        "are, with ./dev build --preset cuda, or use --transport gloo");
}

ir::Result<std::unique_ptr<NcclWay>> NcclWay::connect(const ir::Schedule& /*schedule*/,
                                                      executor::Peers& /*peers*/,
                                                      const TrainRequest& /*request*/) {
  return check_built().error();
}

}  // namespace xpipe::app
