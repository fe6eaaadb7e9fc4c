#include "executor/torch/skips.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace xpipe::executor::nn {

namespace {

std::vector<StagePort> ports_of(const std::vector<std::set<std::size_t>>& by_stage) {
  std::vector<StagePort> ports;
  for (std::size_t k = 0; k < by_stage.size(); ++k) {
    if (!by_stage[k].empty()) {
      ports.push_back({k, {by_stage[k].begin(), by_stage[k].end()}});
    }
  }
  return ports;
}

std::vector<std::size_t> producers_of(const std::vector<StagePort>& ports) {
  std::set<std::size_t> producers;
  for (const StagePort& port : ports) {
    producers.insert(port.producers.begin(), port.producers.end());
  }
  return {producers.begin(), producers.end()};
}

}  // namespace

ir::Status check_skips(const std::vector<Skip>& skips, std::size_t layers) {
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const Skip& skip : skips) {
    if (skip.to >= layers || skip.from + 1 >= skip.to) {
      error.diagnostics.push_back(
          {"bad-skip", "skips",
           "a skip from layer " + std::to_string(skip.from) + " to layer " +
               std::to_string(skip.to) + " of " + std::to_string(layers) +
               "; want one from a layer to a later one that is not the next"});
    }
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

StageWiring chain_of_layers(std::size_t layers) {
  return {.first_layer = 0,
          .layers = layers,
          .skips = {},
          .from = {},
          .to = {},
          .imports = {kModelInput},
          .exports = {layers - 1}};
}

std::vector<StageWiring> wire(const std::vector<std::uint32_t>& partition,
                              const std::vector<Skip>& skips) {
  const std::size_t stages = partition.size();
  std::vector<StageWiring> wiring(stages);
  std::vector<std::size_t> stage_of;
  for (std::size_t k = 0; k < stages; ++k) {
    wiring[k].first_layer = stage_of.size();
    wiring[k].layers = partition[k];
    stage_of.insert(stage_of.end(), partition[k], k);
  }
  // By reader, then by maker: the layers whose outputs go from one to the other.
  std::vector<std::vector<std::set<std::size_t>>> read(stages,
                                                       std::vector<std::set<std::size_t>>(stages));
  const auto add = [&](std::size_t from, std::size_t to) {
    if (stage_of[from] != stage_of[to]) {
      read[stage_of[to]][stage_of[from]].insert(from);
    }
  };
  for (std::size_t l = 1; l < stage_of.size(); ++l) {
    add(l - 1, l);
  }
  for (const Skip& skip : skips) {
    add(skip.from, skip.to);
    wiring[stage_of[skip.to]].skips.push_back(skip);
  }
  for (std::size_t k = 0; k < stages; ++k) {
    StageWiring& stage = wiring[k];
    stage.from = ports_of(read[k]);
    std::vector<std::set<std::size_t>> readers(stages);
    for (std::size_t r = k + 1; r < stages; ++r) {
      readers[r] = read[r][k];
    }
    stage.to = ports_of(readers);
    stage.imports = k == 0 ? std::vector<std::size_t>{kModelInput} : producers_of(stage.from);
    stage.exports = producers_of(stage.to);
    if (stage.exports.empty()) {
      stage.exports.push_back(stage.first_layer + stage.layers - 1);
    }
  }
  return wiring;
}

std::vector<std::size_t> read_from(const std::vector<StageWiring>& wiring, std::size_t stage) {
  std::set<std::size_t> producers;
  for (std::size_t k = stage; k < wiring.size(); ++k) {
    for (const std::size_t producer : wiring[k].imports) {
      if (producer < wiring[stage].first_layer) {
        producers.insert(producer);
      }
    }
  }
  return {producers.begin(), producers.end()};
}

}  // namespace xpipe::executor::nn
