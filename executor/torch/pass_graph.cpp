#include "executor/torch/pass_graph.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

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

/// What runs `child` of a Sequential.
std::function<torch::Tensor(const torch::Tensor&)> runner_of(torch::nn::AnyModule child) {
  return [child](const torch::Tensor& input) mutable { return child.forward(input); };
}

std::function<torch::Tensor(const torch::Tensor&)> runner_of(torch::nn::Sequential layer) {
  return [layer](const torch::Tensor& input) mutable { return layer->forward(input); };
}

bool contains(const std::vector<std::size_t>& numbers, std::size_t number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

class Cutter {
 public:
  explicit Cutter(const StageWiring& wiring) : wiring_(wiring) {
    cut_.imports = wiring.imports.size();
    cut_.tensors = cut_.imports + wiring.layers;
    last_ = cut_.imports - 1;
    for (const std::size_t producer : wiring.exports) {
      cut_.exports.push_back(number_of(producer));
    }
  }

  void begin_piece() {
    if (cut_.pieces.empty() || !cut_.pieces.back().steps.empty()) {
      cut_.pieces.emplace_back();
      begins_with_.push_back(last_);
    }
  }

  /// The skips that end at layer `l` of the stage.
  [[nodiscard]] std::vector<Piece::Joined> joined(std::size_t l) const {
    std::vector<Piece::Joined> joined;
    for (const Skip& skip : wiring_.skips) {
      if (skip.to == wiring_.first_layer + l) {
        joined.push_back({number_of(skip.from), skip.join});
      }
    }
    return joined;
  }

  /// The number of a layer's output, or of what one of its children makes for the next.
  [[nodiscard]] std::size_t output_of(std::size_t l) const { return cut_.imports + l; }

  std::size_t new_tensor() { return cut_.tensors++; }

  void add(Piece::Step step, const torch::nn::Module& module) {
    Piece& piece = cut_.pieces.back();
    for (torch::Tensor& parameter : trainable(module)) {
      const bool is_known = std::ranges::any_of(
          piece.parameters, [&](const torch::Tensor& known) { return known.is_same(parameter); });
      if (!is_known) {
        piece.parameters.push_back(std::move(parameter));
      }
    }
    last_ = step.result;
    piece.steps.push_back(std::move(step));
  }

  /// What each piece reads and leaves.
  [[nodiscard]] Pieces finish() && {
    std::vector<std::size_t> read = cut_.exports;  // behind the piece in question
    for (std::size_t p = cut_.pieces.size(); p-- > 0;) {
      Piece& piece = cut_.pieces[p];
      std::vector<std::size_t> made;
      std::vector<std::size_t> joined_here;
      for (const Piece::Step& step : piece.steps) {
        for (const Piece::Joined& joined : step.joined) {
          joined_here.push_back(joined.tensor);
          if (!contains(made, joined.tensor) && !contains(piece.inputs, joined.tensor) &&
              joined.tensor != begins_with_[p]) {
            piece.inputs.push_back(joined.tensor);
          }
        }
        made.push_back(step.result);
      }
      piece.inputs.push_back(begins_with_[p]);
      piece.keeps_first = contains(joined_here, begins_with_[p]);
      const std::size_t last = made.empty() ? begins_with_[p] : made.back();
      for (const std::size_t number : made) {
        if (number != last && contains(read, number)) {
          piece.outputs.push_back(number);
        }
      }
      piece.outputs.push_back(last);
      for (Piece::Step& step : piece.steps) {
        step.is_kept = step.result != last &&
                       (contains(piece.outputs, step.result) || contains(joined_here, step.result));
      }
      for (const std::size_t number : piece.inputs) {
        if (!contains(read, number)) {
          piece.last_read.push_back(number);
        }
      }
      read.insert(read.end(), piece.inputs.begin(), piece.inputs.end());
    }
    return std::move(cut_);
  }

 private:
  /// Of what layer `producer` of the model makes.
  [[nodiscard]] std::size_t number_of(std::size_t producer) const {
    const auto import = std::ranges::find(wiring_.imports, producer);
    return import != wiring_.imports.end()
               ? static_cast<std::size_t>(import - wiring_.imports.begin())
               : cut_.imports + producer - wiring_.first_layer;
  }

  const StageWiring& wiring_;
  Pieces cut_;
  std::vector<std::size_t> begins_with_;  ///< by piece
  std::size_t last_ = 0;                  ///< what the next step begins with
};

}  // namespace

torch::Tensor joined_to(const torch::Tensor& first, const torch::Tensor& other, Join join) {
  return join == Join::Add ? first + other : torch::cat({first, other}, 1);
}

Tensors Piece::run(const Tensors& read) const {
  struct Kept {
    std::size_t number = 0;
    torch::Tensor tensor;
    std::uint32_t version = 0;  ///< autograd's count of writes
  };

  std::vector<Kept> kept;
  const auto keep = [&kept](std::size_t number, const torch::Tensor& tensor) {
    kept.push_back({number, tensor, static_cast<std::uint32_t>(tensor._version())});
  };
  const auto find = [&kept](std::size_t number) -> const torch::Tensor& {
    const auto found = std::ranges::find(kept, number, &Kept::number);
    XPIPE_CHECK(found != kept.end()) << "nothing has made tensor " << number;
    TORCH_CHECK(found->tensor._version() == found->version,
                "a tensor that a skip carries was modified in place; the layer behind the one that "
                "made it must not be an in-place one");
    return found->tensor;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (i + 1 < inputs.size() || keeps_first) {
      keep(inputs[i], read[i]);
    }
  }
  torch::Tensor output = read.back();
  for (const Step& step : steps) {
    for (const Joined& joined : step.joined) {
      output = joined_to(output, find(joined.tensor), joined.join);
    }
    output = step.run(output);
    if (step.is_kept) {
      keep(step.result, output);
    }
  }
  Tensors made;
  made.reserve(outputs.size());
  for (std::size_t i = 0; i + 1 < outputs.size(); ++i) {
    made.push_back(find(outputs[i]));
  }
  made.push_back(std::move(output));
  return made;
}

Pieces pieces_of(const std::vector<Layer>& layers, Cut cut, const StageWiring& wiring) {
  Cutter cutter(wiring);
  cutter.begin_piece();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    torch::nn::Sequential sequential = layers[l].module;
    if (cut != Cut::AtParameters) {
      if (cut == Cut::AtLayers) {
        cutter.begin_piece();
      }
      cutter.add({cutter.joined(l), runner_of(sequential), cutter.output_of(l)}, *sequential);
      continue;
    }
    std::size_t left = sequential->size();
    for (const torch::nn::AnyModule& child : *sequential) {
      if (!trainable(*child.ptr()).empty()) {
        cutter.begin_piece();
      }
      const bool is_first = left == sequential->size();
      --left;
      cutter.add({is_first ? cutter.joined(l) : std::vector<Piece::Joined>(), runner_of(child),
                  left == 0 ? cutter.output_of(l) : cutter.new_tensor()},
                 *child.ptr());
    }
  }
  return std::move(cutter).finish();
}

void run_pieces(const Pieces& pieces,
                Tensors& tensors,
                const std::function<void(std::size_t)>& before_reading) {
  for (const Piece& piece : pieces.pieces) {
    Tensors read;
    read.reserve(piece.inputs.size());
    for (const std::size_t number : piece.inputs) {
      if (before_reading) {
        before_reading(number);
      }
      read.push_back(tensors[number]);
    }
    Tensors made = piece.run(read);
    for (std::size_t i = 0; i < made.size(); ++i) {
      tensors[piece.outputs[i]] = std::move(made[i]);
    }
    for (const std::size_t number : piece.last_read) {
      tensors[number].reset();
    }
  }
}

void add_gradient(torch::Tensor& sum, const torch::Tensor& gradient) {
  if (gradient.defined()) {
    sum = sum.defined() ? sum + gradient : gradient;
  }
}

PassGraph::PassGraph(std::span<const Piece> pieces, Tensors& tensors, const Tail& tail) {
  parts_.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    Part part{.piece = &piece, .inputs = {}, .roots = {}, .gradients = {}};
    part.inputs.reserve(piece.inputs.size());
    for (const std::size_t number : piece.inputs) {
      const torch::Tensor& input = tensors[number];
      part.inputs.push_back(input.detach());
      part.inputs.back().requires_grad_(input.requires_grad());
    }
    part.roots = piece.run(part.inputs);
    for (std::size_t i = 0; i < part.roots.size(); ++i) {
      tensors[piece.outputs[i]] = part.roots[i];
    }
    parts_.push_back(std::move(part));
  }
  if (tail) {
    parts_.back().roots.back() = tail(parts_.back().roots.back());
    parts_.back().is_loss = true;
  }
}

/// Leaves the roots that something depends on, each with its gradient.
void PassGraph::take_gradients(Part& part, Tensors& gradients) {
  Tensors roots;
  for (std::size_t i = 0; i < part.roots.size(); ++i) {
    torch::Tensor gradient = std::exchange(gradients[part.piece->outputs[i]], {});
    const bool is_loss = part.is_loss && i + 1 == part.roots.size();
    if (part.roots[i].requires_grad() && (is_loss || gradient.defined())) {
      roots.push_back(std::move(part.roots[i]));
      part.gradients.push_back(std::move(gradient));
    }
  }
  part.roots = std::move(roots);
}

void PassGraph::backward(Tensors& gradients) {
  while (!parts_.empty()) {
    Part part = std::move(parts_.back());
    parts_.pop_back();
    take_gradients(part, gradients);
    if (part.roots.empty()) {
      continue;
    }
    torch::autograd::backward(part.roots, part.gradients);
    for (std::size_t i = 0; i < part.inputs.size(); ++i) {
      add_gradient(gradients[part.piece->inputs[i]], part.inputs[i].grad());
    }
  }
}

void PassGraph::backward_input(Tensors& gradients) {
  std::vector<Part> left;
  left.reserve(parts_.size());
  while (!parts_.empty()) {
    Part part = std::move(parts_.back());
    parts_.pop_back();
    take_gradients(part, gradients);
    if (part.roots.empty()) {
      continue;
    }
    const bool is_kept = !part.piece->parameters.empty();
    Tensors wanted;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < part.inputs.size(); ++i) {
      if (part.inputs[i].requires_grad()) {
        wanted.push_back(part.inputs[i]);
        numbers.push_back(part.piece->inputs[i]);
      }
    }
    if (!wanted.empty()) {
      const Tensors down =
          torch::autograd::grad(part.roots, wanted, part.gradients, is_kept, false, true);
      for (std::size_t i = 0; i < down.size(); ++i) {
        add_gradient(gradients[numbers[i]], down[i]);
      }
    }
    if (is_kept) {
      left.push_back(std::move(part));
    }
  }
  parts_ = std::move(left);  // last piece first, as the weight part uses them
}

void PassGraph::backward_weight() {
  for (Part& part : std::exchange(parts_, {})) {
    const Part now = std::move(part);
    torch::autograd::backward(now.roots, now.gradients, false, false, now.piece->parameters);
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
