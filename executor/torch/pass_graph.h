// What the forward of one micro-batch on one stage leaves for its backward, and the backward:
// whole, or as an input part and a weight part. A stage is cut into pieces, each with an autograd
// graph of its own that begins at leaves; gradients go from piece to piece by hand.
//
//   one piece           whole backwards: the graph of the whole stage
//   a piece a layer     recomputation of one layer at a time
//   a piece begins at   split backwards. The input part walks the pieces backwards and keeps the
//   every module with   gradients of their outputs; the weight part uses them, once for each piece,
//   parameters          so that a weight used twice is counted once for each use (field case I1)
//
// Tensors have numbers within a stage: first its imports, the one that its first layer reads last,
// then the outputs of its layers, then what passes between pieces within a layer. A tensor that two
// pieces read, or a piece and another stage, gets the sum of their gradients.
//
// What a split backward keeps until its weight part, beside those gradients, is the whole graph of
// each piece with parameters: its inputs, which the weight gradient needs, and what its operations
// behind the first one have saved (LibTorch frees a graph as a whole or not at all). Within a piece
// the weight part computes again how gradients go from its outputs to its parameters. Pieces
// without parameters are gone after the input part.
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
#include "executor/torch/skips.h"

namespace xpipe::executor::nn {

/// By number within the stage, or by place in a list of numbers; undefined where there is none.
using Tensors = std::vector<torch::Tensor>;

/// Consecutive modules of a stage.
struct Piece {
  /// A tensor that a layer reads beside what the one before it hands on.
  struct Joined {
    std::size_t tensor = 0;
    Join join = Join::Add;
  };

  /// One module, or a layer whole.
  struct Step {
    std::vector<Joined> joined;
    std::function<torch::Tensor(const torch::Tensor&)> run;
    std::size_t result = 0;  ///< the number of what it makes
    bool is_kept = false;    ///< something else reads that, too
  };

  std::vector<Step> steps;
  std::vector<torch::Tensor> parameters;  ///< trainable; each once
  /// From imports and earlier pieces; the last is what its first step begins with.
  std::vector<std::size_t> inputs;
  /// That later pieces and other stages read; the last is what its last step made.
  std::vector<std::size_t> outputs;
  std::vector<std::size_t> last_read;  ///< of its inputs: nothing behind it reads them
  bool keeps_first = false;            ///< a later step reads again what the first one begins with

  /// Takes the tensors of `inputs`, gives those of `outputs`. Throws c10::Error where a module
  /// writes to a tensor that others read.
  [[nodiscard]] Tensors run(const Tensors& read) const;
};

/// A stage as a chain of pieces.
struct Pieces {
  std::vector<Piece> pieces;         ///< at least one
  std::size_t tensors = 0;           ///< how many have numbers
  std::size_t imports = 0;           ///< the first of them
  std::vector<std::size_t> exports;  ///< what other stages read; the last is the last layer's
};

enum class Cut : std::uint8_t { Nowhere, AtLayers, AtParameters };

/// Refers to the modules of `layers`, which are those of `wiring`.
[[nodiscard]] Pieces pieces_of(const std::vector<Layer>& layers,
                               Cut cut,
                               const StageWiring& wiring);

/// Runs all pieces without a graph, or with one that goes through all of them. `tensors` has the
/// imports, by number; the exports are there afterwards, the others are dropped on the way.
/// `before_reading` sees the number of each input of each piece; may be empty.
void run_pieces(const Pieces& pieces,
                Tensors& tensors,
                const std::function<void(std::size_t)>& before_reading = {});

class PassGraph {
 public:
  /// What stands behind the last module: a loss; may be empty.
  using Tail = std::function<torch::Tensor(const torch::Tensor&)>;

  /// Runs `pieces`, which must outlive the graph. `tensors` has what they read, by number, with
  /// requires_grad where its gradient is wanted; the outputs are put there, with their graphs.
  PassGraph(std::span<const Piece> pieces, Tensors& tensors, const Tail& tail);

  /// Adds to the parameters' gradients, and to `gradients`, by number, those of what the pieces
  /// have read. `gradients` has those of what they made, but for a loss, and they are taken out.
  /// Frees the graph.
  void backward(Tensors& gradients);

  /// The same, without the parameters' gradients; frees what backward_weight() does not need.
  void backward_input(Tensors& gradients);

  /// Adds to the parameters' gradients what backward_input() left out. Frees the graph.
  void backward_weight();

 private:
  struct Part {
    const Piece* piece = nullptr;
    Tensors inputs;        ///< the leaves that its graph begins at
    Tensors roots;         ///< its outputs, or what the tail makes of the last
    Tensors gradients;     ///< of the roots, where they are kept for the weight part
    bool is_loss = false;  ///< its last root is a tail's
  };

  static void take_gradients(Part& part, Tensors& gradients);

  std::vector<Part> parts_;
};

/// What a layer with a skip reads.
[[nodiscard]] torch::Tensor joined_to(const torch::Tensor& first,
                                      const torch::Tensor& other,
                                      Join join);

/// Adds `gradient` to that of `sum`, of which another may hold the memory; either may be undefined.
void add_gradient(torch::Tensor& sum, const torch::Tensor& gradient);

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
