// What the forward of one micro-batch on one stage leaves for its backward, and the backward:
// whole, or as an input part and a weight part. A stage is cut into pieces, each with an autograd
// graph of its own that begins at a leaf; a gradient goes from piece to piece by hand.
//
//   one piece           whole backwards: the graph of the whole stage
//   a piece a layer     recomputation of one layer at a time
//   a piece begins at   split backwards. The input part walks the pieces backwards and keeps the
//   every module with   gradient of each output; the weight part uses it, once for each piece, so
//   parameters          that a weight used twice is counted once for each use (field case I1)
//
// What a split backward keeps until its weight part, beside those gradients, is the whole graph of
// each piece with parameters: its input, which the weight gradient needs, and what its operations
// behind the first one have saved (LibTorch frees a graph as a whole or not at all). Within a piece
// the weight part computes again how gradients go from its output to its parameters. Pieces without
// parameters are gone after the input part.
//
// Thread-safety: none; the tasks of a micro-batch follow each other. Throws what LibTorch throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "executor/torch/model.h"

namespace xpipe::executor::nn {

/// Consecutive modules of a stage.
struct Piece {
  std::vector<std::function<torch::Tensor(const torch::Tensor&)>> modules;
  std::vector<torch::Tensor> parameters;  ///< trainable; each once

  [[nodiscard]] torch::Tensor run(const torch::Tensor& input) const;
};

enum class Cut : std::uint8_t { Nowhere, AtLayers, AtParameters };

/// Refers to the modules of `layers`. At least one piece.
[[nodiscard]] std::vector<Piece> pieces_of(const std::vector<Layer>& layers, Cut cut);

class PassGraph {
 public:
  /// What stands behind the stage's last module: a loss; may be empty.
  using Tail = std::function<torch::Tensor(const torch::Tensor&)>;

  /// Runs all pieces. `takes_input_gradient`: the backward is to give the gradient of `input`.
  /// `pieces` must outlive the graph.
  PassGraph(std::span<const Piece> pieces,
            const torch::Tensor& input,
            bool takes_input_gradient,
            const Tail& tail);

  /// The last module's output, with its graph, before the tail.
  [[nodiscard]] const torch::Tensor& output() const { return output_; }

  /// Adds to the parameters' gradients. `gradient`: that of the tail's result; undefined for a
  /// loss. Returns the gradient of the input; undefined where nothing depends on it. Frees the
  /// graph.
  torch::Tensor backward(const torch::Tensor& gradient);

  /// The same, without the parameters' gradients; frees what backward_weight() does not need.
  torch::Tensor backward_input(const torch::Tensor& gradient);

  /// Adds to the parameters' gradients what backward_input() left out. Frees the graph.
  void backward_weight();

 private:
  struct Part {
    const Piece* piece = nullptr;
    torch::Tensor input;     ///< the leaf that its graph begins at
    torch::Tensor root;      ///< its output, or what the tail makes of it
    torch::Tensor gradient;  ///< of the root; after backward_input()
  };

  std::vector<Part> parts_;
  torch::Tensor output_;
};

/// Puts the buffers of layers back as they were when it began: a forward that runs again must not
/// count twice in a batch norm's running statistics.
class BuffersKept {
 public:
  explicit BuffersKept(const std::vector<Layer>& layers);
  BuffersKept(const BuffersKept&) = delete;
  BuffersKept& operator=(const BuffersKept&) = delete;
  ~BuffersKept();

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> before_;
};

}  // namespace xpipe::executor::nn
