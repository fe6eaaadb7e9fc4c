#include "ir/pipedream_graph.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/decimal.h"
#include "ir/layer_order.h"
#include "ir/utf8.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr std::size_t kMaxDescription = 72;
constexpr int kNanosPerMilli = 6;  // decimal places

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + separator.size());
  }
}

/// One line of a name: runs of blanks become one, a long tail is cut.
std::string short_description(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) {
      out += c;
    }
  }
  if (out.size() > kMaxDescription) {
    std::size_t end = kMaxDescription;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0) == 0x80) {
      --end;  // not within a UTF-8 character
    }
    out = out.substr(0, end) + "...";
  }
  return out;
}

bool is_input(std::string_view description) {
  return description.substr(0, 5) == "Input" &&
         description.find_first_not_of("0123456789", 5) == std::string_view::npos;
}

class GraphReader {
 public:
  GraphReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<PipedreamGraph> read(std::uint32_t samples) {
    std::size_t begin = 0;
    while (begin < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string_view line = text_.substr(begin, end - begin);
      if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
      }
      ++line_;
      if (invalid_utf8_at(line)) {
        fault("utf-8", "invalid UTF-8: expected the file in UTF-8");
      } else if (!line.empty() && line[0] == '\t') {
        read_edge(line.substr(1));
      } else {
        read_node(line);
      }
      begin = end + 1;
    }
    if (graph_.profile.layers.empty() && faults_.empty()) {
      line_ = std::max<std::size_t>(line_, 1);
      fault("graph-node",
            "no nodes: expected lines \"ID -- DESCRIPTION -- forward_compute_time=...\"");
    }
    if (!faults_.empty()) {
      return Error{ErrorKind::BadInput, std::move(faults_)};
    }
    return finish(samples);
  }

 private:
  void fault(std::string code, const std::string& message) {
    std::string where = file_.empty() ? "" : std::string(file_) + ": ";
    faults_.push_back(
        {std::move(code), where + "line " + std::to_string(line_), one_line(message)});
  }

  void read_node(std::string_view line) {
    const std::vector<std::string_view> parts = split(line, kSeparator);
    if (!edge_lines_.empty()) {
      fault("graph-node",
            "a node after the edges: expected all nodes first, and edges to begin "
            "with a tab");
      return;
    }
    if (parts.size() != 3 && parts.size() != 4) {
      fault("graph-node",
            "expected 3 or 4 parts divided by \" -- \", found " + std::to_string(parts.size()));
      return;
    }
    if (parts[0].empty()) {
      fault("graph-node", "the node has no id");
    }
    const auto index = static_cast<std::uint32_t>(graph_.profile.layers.size());
    const auto [known, is_new] = nodes_.emplace(std::string(parts[0]), index);
    if (!is_new) {
      fault("graph-node", "node \"" + std::string(parts[0]) + "\" is there twice");
    }
    LayerProfile layer;
    layer.name = std::string(parts[0]) + " " + short_description(parts[1]);
    read_numbers(parts[2], layer);
    if (parts.size() == 4) {
      read_stage(parts[3]);
    }
    if (is_input(parts[1])) {
      if (layer.forward > std::numeric_limits<Nanos>::max() - graph_.profile.data_loading) {
        fault("graph-number", "data loading adds up to more than 64 bits hold");
      } else {
        graph_.profile.data_loading += layer.forward;
      }
      layer.forward = layer.backward_input = layer.backward_weight = 0;
    }
    is_getitem_.push_back(parts[1].substr(0, 11) == "__getitem__");
    graph_.profile.layers.push_back(std::move(layer));
  }

  void read_stage(std::string_view part) {
    constexpr std::string_view kKey = "stage_id=";
    const std::string_view number = part.substr(std::min(kKey.size(), part.size()));
    if (part.substr(0, kKey.size()) != kKey || number.empty() ||
        number.find_first_not_of("0123456789") != std::string_view::npos) {
      fault("graph-node",
            "expected \"stage_id=NUMBER\" as fourth part, found \"" + std::string(part) + "\"");
    }
    has_stages_ = true;
  }

  void read_numbers(std::string_view meta, LayerProfile& layer) {
    constexpr std::string_view kKeys[] = {
        "forward_compute_time=", "backward_compute_time=", "activation_size=", "parameter_size="};
    const std::vector<std::string_view> fields = split(meta, ", ");
    bool as_expected = fields.size() == 4;
    for (std::size_t i = 0; as_expected && i < 4; ++i) {
      as_expected = fields[i].substr(0, kKeys[i].size()) == kKeys[i];
    }
    if (!as_expected) {
      fault("graph-node",
            "expected forward_compute_time, backward_compute_time, activation_size and "
            "parameter_size, these four in this order, found \"" +
                std::string(meta) + "\"");
      return;
    }
    const auto value = [&](std::size_t i) { return fields[i].substr(kKeys[i].size()); };
    layer.forward = number(value(0), kNanosPerMilli, kKeys[0]);
    const Nanos backward = number(value(1), kNanosPerMilli, kKeys[1]);
    layer.backward_input = backward / 2;
    layer.backward_weight = backward - backward / 2;
    layer.output_bytes = activation(value(2));
    layer.saved_bytes = layer.output_bytes;
    layer.saved_for_weight_bytes = layer.saved_bytes;
    layer.parameter_bytes = number(value(3), 0, kKeys[3]);
  }

  std::int64_t number(std::string_view text, int places, std::string_view key) {
    const bool plain = text.find_first_not_of("0123456789.") == std::string_view::npos;
    const std::optional<ScaledDecimal> value = plain ? scaled_decimal(text, places) : std::nullopt;
    const std::string what(key.substr(0, key.size() - 1));
    if (!value) {
      fault("graph-number", what + ": expected a decimal number of at least 0, found \"" +
                                std::string(text) + "\"");
      return 0;
    }
    if (places == 0 && !value->exact) {
      fault("graph-number", what + ": expected whole bytes, found \"" + std::string(text) + "\"");
    }
    return value->value;
  }

  Bytes activation(std::string_view text) {
    constexpr std::string_view kKey = "activation_size=";
    if (text.empty() || text[0] != '[') {
      return number(text, 0, kKey);
    }
    if (text.back() != ']') {
      fault("graph-number", "activation_size: expected \"]\" after the list");
      return 0;
    }
    Bytes sum = 0;
    for (const std::string_view item : split(text.substr(1, text.size() - 2), "; ")) {
      const Bytes bytes = number(item, 0, kKey);
      if (bytes > std::numeric_limits<Bytes>::max() - sum) {
        fault("graph-number", "activation_size: the list adds up to more than 64 bits hold");
        return 0;
      }
      sum += bytes;
    }
    return sum;
  }

  void read_edge(std::string_view line) {
    edge_lines_.push_back(line_);
    const std::vector<std::string_view> parts = split(line, kSeparator);
    if (parts.size() != 2) {
      fault("graph-edge",
            "expected a tab and \"ID -- ID\", found " + std::to_string(parts.size()) + " parts");
      return;
    }
    std::optional<std::uint32_t> ends[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const auto known = nodes_.find(std::string(parts[i]));
      if (known == nodes_.end()) {
        fault("graph-edge", "no node is called \"" + std::string(parts[i]) + "\"");
      } else {
        ends[i] = known->second;
      }
    }
    if (!ends[0] || !ends[1]) {
      return;
    }
    const LayerEdge edge{*ends[0], *ends[1]};
    if (edge.from == edge.to) {
      fault("graph-edge", "goes from a node to itself");
      return;
    }
    const auto [first, is_new] = edge_line_.emplace(edge, line_);
    if (!is_new) {
      fault("graph-edge", "duplicate of the edge on line " + std::to_string(first->second));
      return;
    }
    graph_.profile.edges.push_back(edge);
  }

  void drop_unused_getitems() {
    std::vector<LayerProfile>& layers = graph_.profile.layers;
    std::vector<bool> used(layers.size(), false);
    for (const LayerEdge& edge : graph_.profile.edges) {
      used[edge.from] = true;
    }
    std::vector<std::uint32_t> place(layers.size());
    std::vector<LayerProfile> kept;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      place[i] = static_cast<std::uint32_t>(kept.size());
      if (used[i] || !is_getitem_[i]) {
        kept.push_back(std::move(layers[i]));
      }
    }
    const std::size_t dropped = layers.size() - kept.size();
    layers = std::move(kept);
    if (dropped == 0) {
      return;
    }
    std::erase_if(graph_.profile.edges,
                  [&](const LayerEdge& edge) { return !used[edge.to] && is_getitem_[edge.to]; });
    for (LayerEdge& edge : graph_.profile.edges) {
      edge = {place[edge.from], place[edge.to]};
    }
    graph_.notes.push_back(std::to_string(dropped) +
                           " __getitem__ nodes that nothing uses are left out");
  }

  Result<PipedreamGraph> finish(std::uint32_t samples) {
    Profile& profile = graph_.profile;
    profile.name = std::string(file_.substr(file_.find_last_of('/') + 1));
    for (const std::string_view suffix : {".txt", ".graph"}) {
      if (profile.name.size() > suffix.size() && profile.name.ends_with(suffix)) {
        profile.name.resize(profile.name.size() - suffix.size());
      }
    }
    profile.samples = samples;
    profile.provenance = "PipeDream graph.txt; the GPU is not stated, taken as a batch of " +
                         std::to_string(samples) + " samples";
    if (profile.data_loading > 0) {
      graph_.notes.push_back("Input nodes: " + micros_text(profile.data_loading) +
                             " us are data loading, not compute");
    }
    if (has_stages_) {
      graph_.notes.push_back("stage_id is not used");
    }
    drop_unused_getitems();
    graph_.notes.push_back("saved_bytes is each node's output, an upper bound");
    for (const Status& status : {arrange_layers(profile), check_totals(profile)}) {
      if (!status.ok()) {
        Error error = status.error();
        for (Diagnostic& diagnostic : error.diagnostics) {
          diagnostic.where = std::string(file_) + ": " + diagnostic.where;
        }
        return error;
      }
    }
    return std::move(graph_);
  }

  std::string_view text_;
  std::string_view file_;
  std::size_t line_ = 0;
  PipedreamGraph graph_;
  std::unordered_map<std::string, std::uint32_t> nodes_;
  std::map<LayerEdge, std::size_t> edge_line_;
  std::vector<std::size_t> edge_lines_;
  std::vector<bool> is_getitem_;  ///< by index into the layers
  bool has_stages_ = false;
  std::vector<Diagnostic> faults_;
};

}  // namespace

Result<PipedreamGraph> pipedream_graph_from_text(std::string_view text,
                                                 std::string_view file,
                                                 std::uint32_t samples) {
  XPIPE_CHECK(samples > 0) << "samples of " << file;
  return GraphReader(text, file).read(samples);
}

}  // namespace xpipe::ir
