// Skips: what a layer reads beside the output of the layer before it, and what of it crosses the
// borders of stages. A skip may jump over any number of stages; its tensor then goes straight from
// the stage that made it to the one that reads it, as a message of its own or in one message with
// what the stages hand on anyway. No torch.
//
//   layers      0 ---> 1 ---> 2 ---> 3 ---> 4        skip {from 1, to 4}
//                      '--------------------^        layer 4 reads join(output of 3, output of 1)
//   stages     [ 0 ][ 1      2 ][ 3 ][ 4 ]
//   messages   0>1: {0}   1>2: {2}   2>3: {3}   1>3: {1}        gradients go the other way
//
// A message between two stages has the outputs that the later one reads, in the order of the layers
// that made them, each once; so has that of their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/status.h"

namespace xpipe::executor::nn {

/// What becomes of the two tensors that a layer with a skip reads.
enum class Join : std::uint8_t {
  Add,          ///< the sum: equal shapes
  Concatenate,  ///< side by side in dimension 1, the channels; what the layer before hands on first
};

/// Layer `to` reads the output of layer `from`, too, joined to that of layer `to` - 1.
struct Skip {
  std::size_t from = 0;
  std::size_t to = 0;
  Join join = Join::Add;

  bool operator==(const Skip&) const = default;
};

/// Errors: Usage "bad-skip" for each skip that does not go from a layer to one behind the next.
[[nodiscard]] ir::Status check_skips(const std::vector<Skip>& skips, std::size_t layers);

/// The producer of a sample itself.
inline constexpr std::size_t kModelInput = static_cast<std::size_t>(-1);

/// What one stage and another exchange, by the layers that made it, ascending.
struct StagePort {
  std::size_t stage = 0;
  std::vector<std::size_t> producers;

  bool operator==(const StagePort&) const = default;
};

/// The borders of one stage. Layers are counted over the model.
struct StageWiring {
  std::size_t first_layer = 0;
  std::size_t layers = 0;
  std::vector<Skip> skips;           ///< those whose `to` is here
  std::vector<StagePort> from;       ///< earlier stages; empty: it reads samples
  std::vector<StagePort> to;         ///< later stages; empty: it is the last one
  std::vector<std::size_t> imports;  ///< all producers of `from`; the layer before it is the last
  std::vector<std::size_t> exports;  ///< its layers that others read, ascending; its last layer's
                                     ///< output is always one, be it that of the model

  bool operator==(const StageWiring&) const = default;
};

/// Of a stage that one tensor enters and one leaves.
[[nodiscard]] StageWiring chain_of_layers(std::size_t layers);

/// By stage. Requires: check_skips(); the partition covers the layers.
[[nodiscard]] std::vector<StageWiring> wire(const std::vector<std::uint32_t>& partition,
                                            const std::vector<Skip>& skips);

/// The layers before stage `stage` whose outputs it or a later one reads, ascending.
[[nodiscard]] std::vector<std::size_t> read_from(const std::vector<StageWiring>& wiring,
                                                 std::size_t stage);

}  // namespace xpipe::executor::nn
