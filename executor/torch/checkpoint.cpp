#include "executor/torch/checkpoint.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

using ir::ErrorKind;

/// The first line of what LibTorch says; the rest is where in its sources.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string described(const torch::Tensor& tensor) {
  std::string text = std::string(tensor.dtype().name()) + " [";
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.back() == '[' ? "" : ", ") + std::to_string(size);
  }
  return text + "]";
}

/// In fixed order: equal tensors, equal bytes.
c10::Dict<std::string, torch::Tensor> dictionary(const NamedTensors& tensors) {
  c10::Dict<std::string, torch::Tensor> dictionary;
  for (const auto& [name, tensor] : tensors) {
    // Without the rest of a storage that it may be a view of, nor anything of autograd.
    dictionary.insert(name, tensor.detach().cpu().contiguous());
  }
  return dictionary;
}

/// What torch::pickle_save() writes, but for the type that it tags dictionaries with: torch.load()
/// of Python refuses the tag unless it is told to trust the file (weights_only=False).
std::string archive_of(const c10::IValue& value) {
  std::string pickle;
  torch::jit::Pickler pickler(
      [&pickle](const char* bytes, std::size_t size) { pickle.append(bytes, size); }, nullptr,
      nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string archive;
  caffe2::serialize::PyTorchStreamWriter writer([&archive](const void* bytes, std::size_t size) {
    archive.append(static_cast<const char*>(bytes), size);
    return size;
  });
  std::size_t number = 0;
  for (const torch::Tensor& tensor : pickler.tensorData()) {
    const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), data.data(), data.sizeInBytes());
  }
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeEndOfFile();
  return archive;
}

/// Compares what a file holds of weights and buffers with what the layer has.
void compare(const NamedTensors& wanted,
             const NamedTensors& found,
             const std::string& file,
             ir::Error& error) {
  const auto fault = [&](const std::string& what) {
    error.diagnostics.push_back({"wrong-model", file, what});
  };
  for (const auto& [name, tensor] : wanted) {
    const auto match = found.find(name);
    if (match == found.end()) {
      fault("has no " + name + ", which this model's layer has");
    } else if (match->second.sizes() != tensor.sizes() || match->second.dtype() != tensor.dtype()) {
      fault(name + " is " + described(match->second) + ", this model's is " + described(tensor));
    }
  }
  for (const auto& [name, tensor] : found) {
    if (!wanted.contains(name)) {
      fault("has " + name + ", which this model's layer has not");
    }
  }
}

/// The tensors whose names begin with `prefix`, without it.
NamedTensors below(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors found;
  for (auto next = tensors.lower_bound(prefix);
       next != tensors.end() && next->first.starts_with(prefix); ++next) {
    found[next->first.substr(prefix.size())] = next->second;
  }
  return found;
}

/// `first`: of its layers, in the model.
ir::Status load_stage(Stage& stage, std::size_t first, const ResumePoint& from) {
  for (std::size_t l = 0; l < stage.layers().size(); ++l) {
    if (ir::Status status = check_layer_name(first + l, stage.layers()[l].name, from);
        !status.ok()) {
      return status;
    }
    const ir::Result<std::string> bytes =
        read_layer_file(from.path, from.manifest.layers[first + l]);
    if (!bytes.ok()) {
      return bytes.status();
    }
    if (ir::Status status = load_layer(stage, l, first + l, from, bytes.value()); !status.ok()) {
      return status;
    }
  }
  stage.optimizer().set_steps(from.manifest.steps);
  return {};
}

}  // namespace

NamedTensors layer_values(const Stage& stage, std::size_t layer) {
  NamedTensors values;
  for (const auto& [name, parameter] : stage.parameters_of_layer(layer)) {
    values["parameter/" + name] = stage.weights()[parameter];
  }
  for (const auto& buffer : stage.layers()[layer].module->named_buffers()) {
    values["buffer/" + buffer.key()] = buffer.value();
  }
  return values;
}

ir::Status set_layer_values(const Layer& layer, const NamedTensors& values) {
  const torch::NoGradGuard no_grad;
  NamedTensors own;
  for (const auto& parameter : layer.module->named_parameters()) {
    own["parameter/" + parameter.key()] = parameter.value();
  }
  for (const auto& buffer : layer.module->named_buffers()) {
    own["buffer/" + buffer.key()] = buffer.value();
  }
  for (const auto& [name, value] : values) {
    const auto found = own.find(name);
    if (found == own.end() || found->second.sizes() != value.sizes()) {
      return ir::make_error(
          ErrorKind::Internal, "wrong-model", layer.name,
          "another rank's layer has " + name + " " + described(value) + ", this one's has not");
    }
    found->second.copy_(value);
  }
  return {};
}

NamedTensors layer_state(const Stage& stage, std::size_t layer) {
  NamedTensors state = layer_values(stage, layer);
  for (const auto& [name, parameter] : stage.parameters_of_layer(layer)) {
    for (const auto& [key, tensor] : stage.optimizer().parameter_state(parameter)) {
      state["optimizer/" + name + "/" + key] = tensor;
    }
  }
  return state;
}

ir::Status set_layer_state(Stage& stage,
                           std::size_t layer,
                           const NamedTensors& tensors,
                           std::string_view file) {
  const NamedTensors values = layer_values(stage, layer);
  NamedTensors found = tensors;
  std::erase_if(found, [](const auto& item) { return item.first.starts_with("optimizer/"); });
  ir::Error error{ErrorKind::BadInput, {}};
  compare(values, found, std::string(file), error);
  for (const auto& [name, parameter] : stage.parameters_of_layer(layer)) {
    for (const auto& [key, tensor] : below(tensors, "optimizer/" + name + "/")) {
      if (key != "step" && tensor.sizes() != stage.weights()[parameter].sizes()) {
        error.diagnostics.push_back({"wrong-model", std::string(file),
                                     key + " of " + name + " is " + described(tensor) +
                                         ", its weights are " +
                                         described(stage.weights()[parameter])});
      }
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, value] : values) {
    torch::Tensor(value).copy_(found.at(name));
  }
  for (const auto& [name, parameter] : stage.parameters_of_layer(layer)) {
    stage.optimizer().set_parameter_state(parameter, below(tensors, "optimizer/" + name + "/"));
  }
  return {};
}

ir::Result<std::string> tensors_to_bytes(const NamedTensors& tensors, std::string_view file) {
  try {
    return archive_of(c10::IValue(dictionary(tensors)));
  } catch (const c10::Error& error) {
    return ir::make_error(ErrorKind::Runtime, "torch-failed", std::string(file),
                          error.what_without_backtrace());
  } catch (const std::exception& error) {
    return ir::make_error(ErrorKind::Runtime, "torch-failed", std::string(file), error.what());
  }
}

ir::Result<NamedTensors> tensors_from_bytes(std::string_view bytes, std::string_view file) {
  const auto damaged = [&](const std::string& what) {
    return ir::make_error(ErrorKind::BadInput, "checkpoint-damaged", std::string(file),
                          "is no dictionary of tensors that LibTorch can read: " + what);
  };
  try {
    const c10::IValue value = torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
    if (!value.isGenericDict()) {
      return damaged("it holds " + value.tagKind());
    }
    NamedTensors tensors;
    for (const auto& item : value.toGenericDict()) {
      if (!item.key().isString() || !item.value().isTensor()) {
        return damaged("it maps " + item.key().tagKind() + " to " + item.value().tagKind());
      }
      tensors[item.key().toStringRef()] = item.value().toTensor();
    }
    return tensors;
  } catch (const c10::Error& error) {
    return damaged(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return damaged(first_line(error.what()));
  }
}

ir::Result<std::vector<LayerFile>> write_layers(const std::vector<Stage*>& stages,
                                                const std::vector<std::uint32_t>& partition,
                                                const std::string& begun) {
  std::vector<LayerFile> files;
  std::size_t first = 0;
  for (std::size_t k = 0; k < stages.size(); first += partition[k++]) {
    const Stage& stage = *stages[k];
    for (std::size_t l = 0; l < stage.layers().size(); ++l) {
      const std::string& name = stage.layers()[l].name;
      const ir::Result<std::string> bytes = tensors_to_bytes(layer_state(stage, l), name);
      if (!bytes.ok()) {
        return bytes.error();
      }
      ir::Result<LayerFile> file =
          CheckpointFolder::write_layer(begun, first + l, name, bytes.value());
      if (!file.ok()) {
        return file.error();
      }
      files.push_back(std::move(file).value());
    }
  }
  return files;
}

ir::Status check_layer_name(std::size_t index, const std::string& name, const ResumePoint& from) {
  const std::vector<LayerFile>& files = from.manifest.layers;
  const std::string there = index < files.size() ? files[index].layer : "not there";
  if (there == name) {
    return {};
  }
  return ir::make_error(ErrorKind::BadInput, "wrong-model", from.path,
                        "layer " + std::to_string(index) + " of this model is " + name +
                            ", the checkpoint's is " + there);
}

ir::Status load_layer(Stage& stage,
                      std::size_t layer,
                      std::size_t index,
                      const ResumePoint& from,
                      const std::string& bytes) {
  const std::string file = from.path + "/" + from.manifest.layers[index].file;
  const ir::Result<NamedTensors> tensors = tensors_from_bytes(bytes, file);
  return tensors.ok() ? set_layer_state(stage, layer, tensors.value(), file) : tensors.status();
}

ir::Status load_layers(std::vector<Stage>& stages,
                       const std::vector<std::uint32_t>& replicas,
                       const std::vector<std::uint32_t>& partition,
                       const ResumePoint& from) {
  std::size_t first = 0;
  std::size_t next = 0;
  for (std::size_t k = 0; k < partition.size(); first += partition[k++]) {
    for (std::uint32_t r = 0; r < (replicas.empty() ? 1 : replicas[k]); ++r) {
      if (ir::Status status = load_stage(stages[next++], first, from); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

void add_exported(const std::string& layer, const NamedTensors& values, NamedTensors& all) {
  for (const auto& [name, tensor] : values) {
    all[layer + "." + name.substr(name.find('/') + 1)] = tensor;
  }
}

ir::Status export_weights(const std::vector<Stage*>& stages, const std::string& path) {
  NamedTensors all;
  for (const Stage* stage : stages) {
    for (std::size_t l = 0; l < stage->layers().size(); ++l) {
      add_exported(stage->layers()[l].name, layer_values(*stage, l), all);
    }
  }
  const ir::Result<std::string> bytes = tensors_to_bytes(all, path);
  return bytes.ok() ? ir::write_file(path, bytes.value()) : bytes.status();
}

}  // namespace xpipe::executor::nn
