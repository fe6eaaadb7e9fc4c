#include <cstdio>
#include <ctime>
#include <iostream>
#include <utility>

#include "app/arguments.h"
#include "app/commands.h"
#include "app/exit_status.h"
#include "app/profile_calibration.h"
#include "app/progress.h"
#include "app/table.h"
#include <fmt/format.h>

#include "executor/torch/model_names.h"
#include "executor/torch/profiler.h"
#include "executor/torch/tensor_memory.h"
#include "ir/files.h"
#include "ir/profile_json.h"

namespace xpipe::app {

namespace {

namespace nn = executor::nn;

struct ProfileArguments {
  nn::ProfileRequest request;
  std::string input = "3x32x32";
  std::string optimizer = "adam";
  std::vector<std::string> settings;
  std::string output;
  bool layers = false;
  bool json = false;
  CalibrationArguments calibration;
};

/// "1x28x28": channels, height, width.
ir::Status parse_input(const std::string& word, nn::ProfileRequest& request) {
  unsigned channels = 0;
  unsigned height = 0;
  unsigned width = 0;
  int read = 0;
  if (word.size() > 20 ||
      std::sscanf(word.c_str(), "%5ux%5ux%5u%n", &channels, &height, &width, &read) != 3 ||
      static_cast<std::size_t>(read) != word.size() || channels == 0 || height == 0 || width == 0) {
    return ir::make_error(
        ir::ErrorKind::Usage, "input", "--input",
        fmt::format("found '{}', expected CHANNELSxHEIGHTxWIDTH, such as 3x32x32", word));
  }
  request.channels = channels;
  request.height = height;
  request.width = width;
  return {};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &day);
  return text;
}

std::string microseconds(ir::Nanos time) {
  return fmt::format("{:.3f}", static_cast<double>(time) / 1e3);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

/// A row a layer, with all that the profile says of it.
std::string layers_table(const nn::MeasuredProfile& measured) {
  Table table({"<layer", "forward us", "spread", "backward-input us", "backward-weight us",
               "spread", "update us", "output bytes", "saved bytes", "parameters"});
  for (std::size_t l = 0; l < measured.profile.layers.size(); ++l) {
    const ir::LayerProfile& layer = measured.profile.layers[l];
    const nn::LayerSpread& spread = measured.spreads[l];
    table.add_row({layer.name, microseconds(layer.forward), percent(spread.forward),
                   microseconds(layer.backward_input), microseconds(layer.backward_weight),
                   percent(spread.backward), layer.update ? microseconds(*layer.update) : "",
                   std::to_string(layer.output_bytes), std::to_string(layer.saved_bytes),
                   std::to_string(layer.parameter_bytes / static_cast<ir::Bytes>(sizeof(float)))});
  }
  return table.to_string();
}

std::string short_table(const nn::MeasuredProfile& measured) {
  Table table({"<layer", "forward us", "spread", "backward us", "spread", "update us",
               "output bytes", "saved bytes", "parameter bytes"});
  for (std::size_t l = 0; l < measured.profile.layers.size(); ++l) {
    const ir::LayerProfile& layer = measured.profile.layers[l];
    const nn::LayerSpread& spread = measured.spreads[l];
    table.add_row({layer.name, microseconds(layer.forward), percent(spread.forward),
                   microseconds(layer.backward_input + layer.backward_weight),
                   percent(spread.backward), microseconds(layer.update.value_or(0)),
                   std::to_string(layer.output_bytes), std::to_string(layer.saved_bytes),
                   std::to_string(layer.parameter_bytes)});
  }
  return table.to_string();
}

void print_people(const nn::MeasuredProfile& measured, bool layers) {
  const ir::Profile& profile = measured.profile;
  std::cout << fmt::format("{}\n{}\n\n", profile.name, profile.provenance);
  const auto ms = [](ir::Nanos ns) { return static_cast<double>(ns) / 1e6; };
  ir::Nanos forward = 0;
  ir::Nanos backward = 0;
  ir::Nanos update = 0;
  for (const ir::LayerProfile& layer : profile.layers) {
    update += layer.update.value_or(0);
    forward += layer.forward;
    backward += layer.backward_input + layer.backward_weight;
  }
  std::cout << (layers ? layers_table(measured) : short_table(measured))
            << fmt::format(
                   "\n{} samples: forward {:.3f} ms, backward {:.3f} ms, data loading {:.3f} ms; "
                   "update {:.3f} ms\n",
                   profile.samples, ms(forward), ms(backward), ms(profile.data_loading),
                   ms(update));
}

ir::Status profile_command(ProfileArguments& arguments) {
  CalibrationArguments& calibration = arguments.calibration;
  if (!calibration.from_trace.empty()) {
    calibration.output = arguments.output;
    calibration.json = arguments.json;
    return calibrate_profile(calibration);
  }
  for (const auto& [option, value] :
       {std::pair("--profile", &calibration.profile), std::pair("--cluster", &calibration.cluster),
        std::pair("--cluster-output", &calibration.cluster_output)}) {
    if (!value->empty()) {
      return app::usage(option, "has no effect without --from-trace");
    }
  }
  const auto settings = parse_settings(arguments.settings);
  if (!settings.ok()) {
    return settings.error();
  }
  arguments.request.model_options = settings.value();
  if (ir::Status status = parse_input(arguments.input, arguments.request); !status.ok()) {
    return status;
  }
  if (!arguments.output.empty()) {
    if (ir::Status writable = ir::check_writable(arguments.output); !writable.ok()) {
      return writable;
    }
  }
  const ir::Result<nn::OptimizerKind> optimizer = nn::optimizer_kind_from(arguments.optimizer);
  if (!optimizer.ok()) {
    return optimizer.error();
  }
  arguments.request.optimizer = optimizer.value();
  arguments.request.date = today();
  nn::keep_tensor_memory();
  Progress progress("profiling", arguments.request.repeats + arguments.request.warm_up);
  arguments.request.on_round = [&progress](std::uint32_t done, std::uint32_t) {
    progress.update(done, "");
  };
  const ir::Result<nn::MeasuredProfile> profile = nn::profile_model(arguments.request);
  progress.clear();
  if (!profile.ok()) {
    return profile.error();
  }
  for (const std::string& warning : profile.value().warnings) {
    std::cerr << "xpipe: warning: " << warning << '\n';
  }
  const std::string json = ir::profile_to_json(profile.value().profile, profile.value().samples);
  if (!arguments.output.empty()) {
    if (ir::Status written = ir::write_file(arguments.output, json); !written.ok()) {
      return written;
    }
  }
  if (arguments.json) {
    std::cout << json;
  } else {
    print_people(profile.value(), arguments.layers);
  }
  return {};
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("profile", "measure a model's layers on this machine");
  auto arguments = std::make_shared<ProfileArguments>();
  nn::ProfileRequest& request = arguments->request;
  one_of(*command, "--model", request.model, nn::model_names(), "a built-in model");
  text(*command, "--input", arguments->input, "CxHxW",
       "channels, height and width of one sample: 1x28x28 for MNIST (default 3x32x32)");
  whole_number(*command, "--batch-size", request.samples, 1, 1U << 20, "samples that are timed");
  whole_number(*command, "--repeats", request.repeats, 1, 10000, "the medians are over so many");
  whole_number(*command, "--warm-up", request.warm_up, 0, 10000, "rounds before, not counted");
  whole_number(*command, "--intra-op-threads", request.intra_op_threads, 1, 1024,
               "LibTorch's threads");
  one_of(*command, "--optimizer", arguments->optimizer, {"adam", "adamw", "rmsprop", "sgd"},
         "whose steps are timed: update_us");
  settings(*command, arguments->settings);
  text(*command, "-o,--output", arguments->output, "FILE", "write the xpipe.profile here");
  command->add_flag("--layers", arguments->layers,
                    "print all that is measured of each layer: the backward in "
                    "its two parts, parameters by number");
  command->add_flag("--json", arguments->json, "print the profile itself instead of a table");
  CLI::Option* from_trace =
      text(*command, "--from-trace", arguments->calibration.from_trace, "RUN",
           "measure nothing: give the layers of --profile the medians of a run that xpipe train "
           "--trace recorded");
  text(*command, "--profile", arguments->calibration.profile, "FILE",
       "with --from-trace: the profile that is calibrated");
  text(*command, "--cluster", arguments->calibration.cluster, "FILE",
       "with --cluster-output: take the devices from here, and only what messages take from the "
       "run");
  text(*command, "--cluster-output", arguments->calibration.cluster_output, "FILE",
       "with --from-trace: write an xpipe.cluster of the run's devices and what its messages took");
  for (const char* measuring : {"--model", "--input", "--batch-size", "--repeats", "--warm-up",
                                "--intra-op-threads", "--optimizer", "--set", "--layers"}) {
    from_trace->excludes(command->get_option(measuring));
  }
  command->footer(
      "Example: xpipe profile --model lenet5 --input 1x28x28 --batch-size 16 -o lenet5.json\n"
      "From a run: xpipe profile --from-trace run.json --profile lenet5.json -o calibrated.json "
      "--cluster-output machine.json");
  command->callback([&context, arguments] {
    if (ir::Status status = profile_command(*arguments); !status.ok()) {
      context.exit_status = report_error(status.error());
    }
  });
}

}  // namespace xpipe::app
