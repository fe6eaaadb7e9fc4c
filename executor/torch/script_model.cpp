#include "executor/torch/script_model.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/script.h>
#include <torch/torch.h>

#include "executor/torch/dropout.h"
#include "executor/torch/layer_check.h"
#include "ir/files.h"

namespace xpipe::executor::nn {

namespace {

namespace fs = std::filesystem;
using ir::ErrorKind;

/// LibTorch's generator is one a process: layers that draw from it take turns.
std::mutex& generator_lock() {
  static std::mutex mutex;
  return mutex;
}

/// A scripted module as a layer: its parameters and buffers are this module's, the tensors
/// themselves, under the same names.
class ScriptLayerImpl : public torch::nn::Module {
 public:
  /// `layer`: its index in the model, for the random numbers it may draw.
  ScriptLayerImpl(torch::jit::Module script, std::string layer_name, std::uint64_t layer);

  /// Throws c10::Error with the layer's name for whatever the script throws, or when it returns
  /// something else than one tensor.
  torch::Tensor forward(const torch::Tensor& input);

  void train(bool on = true) override;

  /// Two forwards in training, under different seeds, differ: from now on forwards are seeded.
  void notice_randomness(const torch::Tensor& input);

  [[nodiscard]] bool is_random() const { return is_random_; }

  /// Another module with tensors of its own.
  [[nodiscard]] std::shared_ptr<ScriptLayerImpl> copy() const;

 private:
  torch::Tensor run(const torch::Tensor& input);

  torch::jit::Module script_;
  std::string layer_name_;
  std::uint64_t layer_;
  bool is_random_ = false;
};

TORCH_MODULE(ScriptLayer);

/// Registers with `module` what `script` has: parameters, buffers and children, by name.
void mirror(const torch::jit::Module& script, torch::nn::Module& module);

std::shared_ptr<torch::nn::Module> mirror_of(const torch::jit::Module& script) {
  auto module = std::make_shared<torch::nn::Module>();
  mirror(script, *module);
  return module;
}

void mirror(const torch::jit::Module& script, torch::nn::Module& module) {
  for (const auto& parameter : script.named_parameters(false)) {
    module.register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  }
  for (const auto& buffer : script.named_buffers(false)) {
    module.register_buffer(buffer.name, buffer.value);
  }
  for (const auto& child : script.named_children()) {
    module.register_module(child.name, mirror_of(child.value));
  }
}

ScriptLayerImpl::ScriptLayerImpl(torch::jit::Module script,
                                 std::string layer_name,
                                 std::uint64_t layer)
    : script_(std::move(script)), layer_name_(std::move(layer_name)), layer_(layer) {
  mirror(script_, *this);
}

torch::Tensor ScriptLayerImpl::run(const torch::Tensor& input) {
  try {
    return script_.forward({input}).toTensor();
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, "layer ", layer_name_, ": ",
                ours != nullptr ? ours->what_without_backtrace() : error.what());
  }
}

torch::Tensor ScriptLayerImpl::forward(const torch::Tensor& input) {
  if (!is_random_ || !is_training()) {
    return run(input);
  }
  const std::optional<std::uint64_t> seed = pass_seed(layer_);
  TORCH_CHECK(seed.has_value(), "layer ", layer_name_, " draws random numbers outside of a pass");
  const std::lock_guard lock(generator_lock());
  torch::manual_seed(*seed);
  return run(input);
}

void ScriptLayerImpl::train(bool on) {
  torch::nn::Module::train(on);
  script_.train(on);
}

void ScriptLayerImpl::notice_randomness(const torch::Tensor& input) {
  const std::shared_ptr<ScriptLayerImpl> trial = copy();
  const std::shared_ptr<ScriptLayerImpl> again = copy();
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(generator_lock());
  torch::manual_seed(1);
  const torch::Tensor first = trial->run(input);
  torch::manual_seed(2);
  is_random_ = !torch::equal(first, again->run(input));
}

std::shared_ptr<ScriptLayerImpl> ScriptLayerImpl::copy() const {
  torch::jit::Module script;
  {
    const torch::NoGradGuard
        no_grad;  // copies are leaves, not what was computed from the originals
    script = script_.deepcopy();
  }
  const auto originals = script_.named_parameters();
  auto original = originals.begin();
  for (const auto& parameter : script.named_parameters()) {
    torch::Tensor(parameter.value).requires_grad_((*original).value.requires_grad());
    ++original;
  }
  auto copied = std::make_shared<ScriptLayerImpl>(std::move(script), layer_name_, layer_);
  copied->train(is_training());
  copied->is_random_ = is_random_;
  return copied;
}

bool is_sequential(const torch::jit::Module& script) {
  const auto name = script.type()->name();
  return name && name->name() == "Sequential";
}

/// One archive and its layers.
struct Archive {
  fs::path file;
  torch::jit::Module root;
  std::vector<std::pair<std::string, torch::jit::Module>> layers;
};

/// What save_script_model() writes.
struct Archives : ModelOrigin {
  std::vector<Archive> all;
};

ir::Result<std::vector<fs::path>> archive_files(const std::string& path) {
  std::error_code failed;
  std::vector<fs::path> files;
  if (fs::is_directory(path, failed)) {
    for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (entry->path().extension() == ".pt") {
        files.push_back(entry->path());
      }
    }
    std::ranges::sort(files);
    if (files.empty()) {
      return ir::make_error(ErrorKind::BadInput, "no-archive", path,
                            "holds no .pt file; want one a stage, in the order of their names");
    }
    return files;
  }
  std::stringstream list(path);
  for (std::string file; std::getline(list, file, ',');) {
    if (!fs::is_regular_file(file, failed)) {
      return ir::make_error(ErrorKind::BadInput, "no-file", file, "there is no such file");
    }
    files.emplace_back(file);
  }
  return files;
}

ir::Result<Archive> read_archive(const fs::path& file) {
  Archive archive{.file = file, .root = {}, .layers = {}};
  try {
    archive.root = torch::jit::load(file.string(), torch::kCPU);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return ir::make_error(ErrorKind::BadInput, "bad-archive", file.string(),
                          "is no TorchScript archive, want what torch.jit.save() writes: " +
                              what.substr(0, what.find('\n')));
  }
  if (is_sequential(archive.root)) {
    for (const auto& child : archive.root.named_children()) {
      archive.layers.emplace_back(child.name, child.value);
    }
    if (archive.layers.empty()) {
      return ir::make_error(ErrorKind::BadInput, "no-layers", file.string(),
                            "is an nn.Sequential without layers");
    }
  } else {
    archive.layers.emplace_back(file.stem().string(), archive.root);
  }
  return archive;
}

/// Weights must own their memory (weight_hooks.h): a view gets some of its own; what two layers
/// share is refused.
ir::Status own_memory(const Layer& layer, std::unordered_map<const void*, std::string>& owners) {
  for (torch::Tensor& parameter : parameters_of({layer})) {
    const void* storage = parameter.storage().unsafeGetStorageImpl();
    const auto [owner, is_new] = owners.emplace(storage, layer.name);
    if (!is_new) {
      return unsuited(layer.name,
                      "shares a weight with layer " + owner->second +
                          "; TorchScript models with tied weights are not supported, give each a "
                          "weight of its own");
    }
    if (!parameter.is_contiguous() || parameter.storage_offset() != 0 ||
        parameter.storage().nbytes() !=
            static_cast<std::size_t>(parameter.numel()) * parameter.itemsize()) {
      parameter.set_data(parameter.detach().clone(at::MemoryFormat::Contiguous));
    }
  }
  return {};
}

class Loader {
 public:
  Loader(const SampleShape& input, std::int64_t classes)
      : input_(trial_input(input, classes)), samples_(input_.size(0)), classes_(classes) {}

  ir::Status add(const std::string& name, const torch::jit::Module& script) {
    ScriptLayer module(script, name, model_.layers.size());
    module->train();
    Layer layer{.name = name, .module = torch::nn::Sequential(module)};
    if (ir::Status status = own_memory(layer, owners_); !status.ok()) {
      return status;
    }
    for (const torch::Tensor& parameter : parameters_of({layer})) {
      if (parameter.scalar_type() != torch::kFloat32) {
        return unsuited(name, std::string("has weights of ") +
                                  torch::toString(parameter.scalar_type()) + "; want float32");
      }
    }
    torch::Tensor output;
    try {
      const auto copy = module->copy();  // running statistics of batch norms stay as they are
      copy->notice_randomness(input_);
      if (copy->is_random()) {
        module->notice_randomness(input_);
      }
      const PassScope pass({});
      const torch::NoGradGuard no_grad;
      output = copy->forward(input_);
    } catch (const c10::Error& error) {
      return unsuited(name, "cannot take what the layer before it gives: " +
                                std::string(error.what_without_backtrace()));
    }
    const Layer of_copy{.name = name, .module = torch::nn::Sequential(ScriptLayer(module->copy()))};
    if (ir::Status status = check_layer(of_copy, input_, model_.layers.empty()); !status.ok()) {
      return status;
    }
    if (output.dim() < 2 || output.size(0) != samples_) {
      return unsuited(name, "turns " + std::to_string(samples_) + " samples into something else");
    }
    describe(layer, output);
    model_.layers.push_back(std::move(layer));
    input_ = output;
    return {};
  }

  ir::Result<Model> take(std::shared_ptr<Archives> archives) && {
    if (input_.dim() < 2 || input_.size(-1) != classes_) {
      return unsuited(model_.layers.back().name,
                      "ends in " + std::to_string(input_.dim() < 2 ? 0 : input_.size(-1)) +
                          " numbers a sample, the data have " + std::to_string(classes_) +
                          " classes");
    }
    model_.name = archives->all.front().file.stem().string();
    if (archives->all.size() > 1) {
      for (const Archive& archive : archives->all) {
        model_.stage_layers.push_back(static_cast<std::uint32_t>(archive.layers.size()));
      }
    }
    model_.origin = std::move(archives);
    return std::move(model_);
  }

 private:
  Model model_;
  torch::Tensor input_;
  std::int64_t samples_;
  std::int64_t classes_;
  std::unordered_map<const void*, std::string> owners_;
};

ir::Status write_archive(const torch::jit::Module& root, const fs::path& file) {
  std::stringstream bytes;
  try {
    root.save(bytes);
  } catch (const std::exception& error) {
    return ir::make_error(ErrorKind::Runtime, "not-saved", file.string(), error.what());
  }
  return ir::write_file(file.string(), bytes.str());
}

}  // namespace

ir::Result<Model> load_script_model(const std::string& path,
                                    const SampleShape& input,
                                    std::int64_t classes) {
  const ir::Result<std::vector<fs::path>> files = archive_files(path);
  if (!files.ok()) {
    return files.error();
  }
  auto archives = std::make_shared<Archives>();
  Loader loader(input, classes);
  for (const fs::path& file : files.value()) {
    ir::Result<Archive> archive = read_archive(file);
    if (!archive.ok()) {
      return archive.error();
    }
    const bool is_one_of_many = files.value().size() > 1 && archive.value().layers.size() > 1;
    for (const auto& [name, script] : archive.value().layers) {
      const std::string whole = is_one_of_many ? file.stem().string() + "." + name : name;
      if (ir::Status status = loader.add(whole, script); !status.ok()) {
        return status.error();
      }
    }
    archives->all.push_back(std::move(archive.value()));
  }
  return std::move(loader).take(std::move(archives));
}

ir::Status save_script_model(const Model& model, const std::string& path) {
  const auto* archives = dynamic_cast<const Archives*>(model.origin.get());
  if (archives == nullptr) {
    return ir::make_error(ErrorKind::Usage, "not-from-archive", "--save-model",
                          "model " + model.name +
                              " was not read from a TorchScript archive; --checkpoint keeps the "
                              "weights of built-in models");
  }
  if (archives->all.size() == 1) {
    return write_archive(archives->all.front().root, path);
  }
  std::error_code failed;
  fs::create_directories(path, failed);
  for (const Archive& archive : archives->all) {
    if (ir::Status status = write_archive(archive.root, fs::path(path) / archive.file.filename());
        !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace xpipe::executor::nn
