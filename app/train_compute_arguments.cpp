#include "app/train_compute_arguments.h"

#include "app/arguments.h"

namespace xpipe::app {

void add_compute_options(CLI::App& command, ComputeArguments& arguments) {
  one_of(command, "--dtype", arguments.dtype, {"float32", "bf16", "fp16"},
         "bf16: slots and activations in bfloat16; master weights, moments and sums of gradients "
         "stay float32; fp16 is refused: it needs scaling of the loss");
  whole_numbers(command, "--device-map", arguments.device_map, 0, 255,
                "with --device cuda: the GPU of each device, in turn (default: 0,1,... over all "
                "there are); several devices may share one: --device-map 0,0");
  one_of(command, "--pin", arguments.pin, {"auto", "none"},
         "auto: each stage's thread keeps to processors of its own, where there are enough");
}

ir::Result<executor::nn::ComputeConfig> compute_config(const ComputeArguments& arguments,
                                                       const std::string& device) {
  if (!arguments.device_map.empty() && device != "cuda") {
    return ir::make_error(
        ir::ErrorKind::Usage, "options", "--device-map",
        "is an option of --device cuda, and the device is " + device + "; drop one");
  }
  if (arguments.dtype == "fp16") {
    return ir::make_error(
        ir::ErrorKind::Usage, "options", "--dtype",
        "fp16 is not there for training: its gradients underflow below 6e-8 without scaling of the "
        "loss, which is not there either; --dtype bf16 has float32's range and needs none");
  }
  executor::nn::ComputeConfig compute;
  compute.dtype = arguments.dtype == "bf16" ? executor::nn::ComputeType::BFloat16
                                            : executor::nn::ComputeType::Float32;
  compute.gpus = arguments.device_map;
  return compute;
}

}  // namespace xpipe::app
