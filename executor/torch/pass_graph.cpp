#include "executor/torch/pass_graph.h"

#include <algorithm>
#include <utility>

namespace xpipe::executor::nn {

namespace {

std::vector<torch::Tensor> trainable(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : module.parameters()) {
    const bool is_known = std::ranges::any_of(
        parameters, [&](const torch::Tensor& known) { return known.is_same(parameter); });
    if (parameter.requires_grad() && !is_known) {
      parameters.push_back(parameter);
    }
  }
  return parameters;
}

void append(Piece& piece,
            std::function<torch::Tensor(const torch::Tensor&)> run,
            const torch::nn::Module& module) {
  piece.modules.push_back(std::move(run));
  for (torch::Tensor& parameter : trainable(module)) {
    const bool is_known = std::ranges::any_of(
        piece.parameters, [&](const torch::Tensor& known) { return known.is_same(parameter); });
    if (!is_known) {
      piece.parameters.push_back(std::move(parameter));
    }
  }
}

/// What runs `child` of a Sequential.
std::function<torch::Tensor(const torch::Tensor&)> runner_of(torch::nn::AnyModule child) {
  return [child](const torch::Tensor& input) mutable { return child.forward(input); };
}

}  // namespace

torch::Tensor Piece::run(const torch::Tensor& input) const {
  torch::Tensor output = input;
  for (const auto& module : modules) {
    output = module(output);
  }
  return output;
}

std::vector<Piece> pieces_of(const std::vector<Layer>& layers, Cut cut) {
  std::vector<Piece> pieces(1);
  for (const Layer& layer : layers) {
    torch::nn::Sequential sequential = layer.module;
    if (cut != Cut::AtParameters) {
      if (cut == Cut::AtLayers && !pieces.back().modules.empty()) {
        pieces.emplace_back();
      }
      append(
          pieces.back(),
          [sequential](const torch::Tensor& input) mutable { return sequential->forward(input); },
          *sequential);
      continue;
    }
    for (const torch::nn::AnyModule& child : *sequential) {
      const bool has_parameters = !trainable(*child.ptr()).empty();
      if (has_parameters && !pieces.back().modules.empty()) {
        pieces.emplace_back();
      }
      append(pieces.back(), runner_of(child), *child.ptr());
    }
  }
  return pieces;
}

PassGraph::PassGraph(std::span<const Piece> pieces,
                     const torch::Tensor& input,
                     bool takes_input_gradient,
                     const Tail& tail) {
  parts_.reserve(pieces.size());
  torch::Tensor next = input;
  bool takes_gradient = takes_input_gradient;
  for (const Piece& piece : pieces) {
    Part part{.piece = &piece, .input = next.detach(), .root = {}, .gradient = {}};
    part.input.requires_grad_(takes_gradient);
    part.root = piece.run(part.input);
    next = part.root;
    takes_gradient = next.requires_grad();
    parts_.push_back(std::move(part));
  }
  output_ = next;
  if (tail) {
    parts_.back().root = tail(next);
  }
}

torch::Tensor PassGraph::backward(const torch::Tensor& gradient) {
  output_.reset();
  torch::Tensor down = gradient;
  while (!parts_.empty()) {
    const Part part = std::move(parts_.back());
    parts_.pop_back();
    if (!part.root.requires_grad()) {
      parts_.clear();
      return {};
    }
    torch::autograd::backward({part.root}, {down});
    down = part.input.grad();
    if (!down.defined()) {
      parts_.clear();
    }
  }
  return down;
}

torch::Tensor PassGraph::backward_input(const torch::Tensor& gradient) {
  output_.reset();
  torch::Tensor down = gradient;
  std::vector<Part> left;
  left.reserve(parts_.size());
  while (!parts_.empty()) {
    Part part = std::move(parts_.back());
    parts_.pop_back();
    if (!part.root.requires_grad()) {
      down.reset();
      break;
    }
    const bool is_kept = !part.piece->parameters.empty();
    part.gradient = down;
    down.reset();
    if (part.input.requires_grad()) {
      down = torch::autograd::grad({part.root}, {part.input}, {part.gradient}, is_kept, false,
                                   true)[0];
    }
    if (is_kept) {
      left.push_back(std::move(part));
    }
    if (!down.defined()) {
      break;
    }
  }
  parts_ = std::move(left);  // last piece first, as the weight part uses them
  return down;
}

void PassGraph::backward_weight() {
  for (Part& part : std::exchange(parts_, {})) {
    const Part now = std::move(part);
    torch::autograd::backward({now.root}, {now.gradient}, false, false, now.piece->parameters);
  }
}

BuffersKept::BuffersKept(const std::vector<Layer>& layers) {
  for (const Layer& layer : layers) {
    for (const torch::Tensor& buffer : layer.module->buffers()) {
      buffers_.push_back(buffer);
      before_.push_back(buffer.detach().clone());
    }
  }
}

BuffersKept::~BuffersKept() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].data().copy_(before_[i]);  // .data(): no version that a graph would miss
  }
}

}  // namespace xpipe::executor::nn
