#include "bench/peers/handover.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

namespace xpipe::bench {

namespace nn = executor::nn;

void fail(const std::string& what) {
  std::fprintf(stderr, "xpipe_contender: %s\n", what.c_str());
  std::exit(5);
}

Handover read_handover(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) {
    fail("cannot read " + path.string());
  }
  const auto head = nlohmann::json::parse(line, nullptr, false);
  if (head.is_discarded()) {
    fail(path.string() + " does not begin with a line of JSON");
  }
  std::vector<torch::Tensor> tensors;
  for (const auto& entry : head.at("tensors")) {
    const bool whole = entry.at("type") == "int64";
    tensors.push_back(torch::empty(entry.at("shape").get<std::vector<std::int64_t>>(),
                                   whole ? torch::kInt64 : torch::kFloat32));
    torch::Tensor& tensor = tensors.back();
    if (!file.read(static_cast<char*>(tensor.data_ptr()),
                   static_cast<std::streamsize>(tensor.nbytes()))) {
      fail(path.string() + " ends too early");
    }
  }
  if (tensors.size() < 2) {
    fail(path.string() + " holds no data");
  }
  return {tensors[0], tensors[1], {tensors.begin() + 2, tensors.end()}};
}

nn::Model model_of(const std::string& work, const Handover& handover) {
  nn::Model model = work == "W1" ? value_of(nn::build_model("vgg16", {}, {3, 32, 32}, 10, 0))
                                 : value_of(nn::build_model("gpt", {}, {.sequence = 128}, 1000, 0));
  std::vector<torch::Tensor> parameters = nn::parameters_of(model.layers);
  if (parameters.size() != handover.weights.size()) {
    fail("the model has " + std::to_string(parameters.size()) + " parameters, the file " +
         std::to_string(handover.weights.size()));
  }
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].sizes() != handover.weights[p].sizes()) {
      fail("parameter " + std::to_string(p) + " has another shape in the file");
    }
    parameters[p].copy_(handover.weights[p]);
  }
  return model;
}

}  // namespace xpipe::bench
