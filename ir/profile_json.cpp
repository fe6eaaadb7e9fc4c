#include "ir/profile_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/decimal.h"
#include "ir/layer_order.h"
#include "ir/strict_json.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kProfileFormat = "xpipe.profile";
constexpr std::int64_t kProfileVersion = 1;

bool is_time(const JsonValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value.value)) {
    return *whole >= 0;
  }
  const auto* number = std::get_if<JsonNumber>(&value.value);
  return number != nullptr && number->text[0] != '-' && scaled_decimal(number->text, 3);
}

class ProfileReader {
 public:
  explicit ProfileReader(std::string_view file) : file_(file), faults_(file) {}

  Result<Profile> read(const JsonValue& document) {
    JsonObject root(document, "", faults_);
    root.expect_format(kProfileFormat, kProfileVersion);
    profile_.name = root.string("name", Need::Optional).value_or("");
    profile_.provenance = root.string("provenance", Need::Optional).value_or("not stated");
    profile_.samples = static_cast<std::uint32_t>(
        root.integer("samples", 1, std::numeric_limits<std::uint32_t>::max(), Need::Required)
            .value_or(0));
    profile_.data_loading = root.micros("data_loading_us", Need::Optional).value_or(0);
    if (const JsonValue::Array* layers = root.array("layers", Need::Required)) {
      if (layers->empty()) {
        root.fault("json-range", "layers", "has no layers: expected at least one");
      }
      for (std::size_t i = 0; i < layers->size(); ++i) {
        read_layer((*layers)[i], "/layers/" + std::to_string(i));
      }
    }
    profile_.edges = chain_edges(profile_.layers.size());
    if (const JsonValue::Array* edges = root.array("edges", Need::Optional)) {
      profile_.edges.clear();
      for (std::size_t i = 0; i < edges->size(); ++i) {
        read_edge((*edges)[i], "/edges/" + std::to_string(i));
      }
      refuse_twin_edges();
    }
    if (const JsonValue::Array* ties = root.array("ties", Need::Optional)) {
      for (std::size_t i = 0; i < ties->size(); ++i) {
        read_tie((*ties)[i], "/ties/" + std::to_string(i));
      }
    }
    root.refuse_unknown();
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    for (const Status& status : {arrange_layers(profile_), check_totals(profile_)}) {
      if (!status.ok()) {
        Error error = status.error();
        for (Diagnostic& diagnostic : error.diagnostics) {
          diagnostic.where = std::string(file_) + ": " + diagnostic.where;
        }
        return error;
      }
    }
    place_ties();
    return std::move(profile_);
  }

 private:
  struct NamedTie {
    std::string first;
    std::string second;
    Bytes bytes = 0;
  };

  void read_layer(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    LayerProfile layer;
    if (std::optional<std::string> name = object.string("name", Need::Required)) {
      const auto [known, is_new] =
          by_name_.emplace(*name, static_cast<std::uint32_t>(profile_.layers.size()));
      if (!is_new) {
        object.fault("profile-layer", "name",
                     "layer " + std::to_string(known->second) + " is called " + json_quoted(*name) +
                         " too: expected names that tell layers apart");
      }
      layer.name = std::move(*name);
    }
    layer.forward = object.micros("forward_us", Need::Required).value_or(0);
    read_backward(object, layer);
    layer.output_bytes = object.bytes("output_bytes", Need::Required).value_or(0);
    layer.saved_bytes = object.bytes("saved_bytes", Need::Required).value_or(0);
    layer.saved_for_weight_bytes =
        object.bytes("saved_for_weight_bytes", Need::Optional).value_or(layer.saved_bytes);
    if (layer.saved_for_weight_bytes > layer.saved_bytes) {
      object.fault("json-range", "saved_for_weight_bytes",
                   "expected at most saved_bytes, " + std::to_string(layer.saved_bytes) +
                       ", of which it is a part, found " +
                       std::to_string(layer.saved_for_weight_bytes));
    }
    layer.parameter_bytes = object.bytes("parameter_bytes", Need::Required).value_or(0);
    layer.workspace_bytes = object.bytes("workspace_bytes", Need::Optional).value_or(0);
    layer.update = object.micros("update_us", Need::Optional);
    read_samples(object, path);
    object.refuse_unknown();
    profile_.layers.push_back(std::move(layer));
  }

  void read_backward(JsonObject& object, LayerProfile& layer) {
    const bool whole = object.get("backward_us", Need::Optional) != nullptr;
    const bool input = object.get("backward_input_us", Need::Optional) != nullptr;
    const bool weight = object.get("backward_weight_us", Need::Optional) != nullptr;
    if (whole && (input || weight)) {
      object.fault("profile-layer", "backward_us",
                   "is given beside its parts: expected it alone, or backward_input_us and "
                   "backward_weight_us");
    } else if (!whole && !input && !weight) {
      object.fault("json-missing-key", "backward_us",
                   "is missing: expected it, or backward_input_us and backward_weight_us");
    } else if (whole) {
      const Nanos backward = object.micros("backward_us", Need::Required).value_or(0);
      layer.backward_input = backward / 2;
      layer.backward_weight = backward - backward / 2;
    } else {
      layer.backward_input = object.micros("backward_input_us", Need::Required).value_or(0);
      layer.backward_weight = object.micros("backward_weight_us", Need::Required).value_or(0);
    }
  }

  /// Measurements that the medians were made of: for people, and for who doubts a median. Checked,
  /// and not needed further.
  void read_samples(JsonObject& object, const std::string& path) {
    const JsonValue* const value = object.get("samples_us", Need::Optional);
    if (value == nullptr) {
      return;
    }
    const std::string place = path + "/samples_us";
    JsonObject samples(*value, place, faults_);
    for (const char* key : {"forward", "backward", "backward_input", "update"}) {
      const JsonValue::Array* const times = samples.array(key, Need::Optional);
      for (std::size_t i = 0; times != nullptr && i < times->size(); ++i) {
        if (!is_time((*times)[i])) {
          faults_.add("json-type", place + "/" + key + "/" + std::to_string(i),
                      "expected microseconds, 0 or more, found " + (*times)[i].shown());
        }
      }
    }
    samples.refuse_unknown();
  }

  void read_edge(const JsonValue& value, const std::string& path) {
    const auto* ends = std::get_if<JsonValue::Array>(&value.value);
    if (ends == nullptr || ends->size() != 2) {
      faults_.add("json-type", path, "expected [\"from\", \"to\"], found " + value.shown());
      return;
    }
    std::optional<std::uint32_t> layers[2];
    for (int end = 0; end < 2; ++end) {
      const std::string place = path + "/" + std::to_string(end);
      const auto* name = std::get_if<std::string>(&(*ends)[static_cast<std::size_t>(end)].value);
      if (name == nullptr) {
        faults_.add("json-type", place,
                    "expected the name of a layer, found " +
                        (*ends)[static_cast<std::size_t>(end)].shown());
      } else if (const auto known = by_name_.find(*name); known != by_name_.end()) {
        layers[end] = known->second;
      } else {
        faults_.add("profile-edge", place, "no layer is called " + json_quoted(*name));
      }
    }
    if (!layers[0] || !layers[1]) {
      return;
    }
    if (*layers[0] == *layers[1]) {
      faults_.add("profile-edge", path, "goes from a layer to itself: expected two layers");
      return;
    }
    profile_.edges.push_back({*layers[0], *layers[1]});
    edge_paths_.push_back(path);
  }

  void read_tie(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    NamedTie tie;
    tie.bytes = object.bytes("bytes", Need::Required).value_or(0);
    const JsonValue::Array* ends = object.array("layers", Need::Required);
    object.refuse_unknown();
    if (ends == nullptr) {
      return;
    }
    if (ends->size() != 2) {
      faults_.add("profile-tie", path + "/layers",
                  "expected two layers, found " + std::to_string(ends->size()));
      return;
    }
    std::string* const names[] = {&tie.first, &tie.second};
    for (std::size_t end = 0; end < 2; ++end) {
      const std::string place = path + "/layers/" + std::to_string(end);
      const auto* name = std::get_if<std::string>(&(*ends)[end].value);
      const auto known = name == nullptr ? by_name_.end() : by_name_.find(*name);
      if (name == nullptr) {
        faults_.add("json-type", place,
                    "expected the name of a layer, found " + (*ends)[end].shown());
        return;
      }
      if (known == by_name_.end()) {
        faults_.add("profile-tie", place, "no layer is called " + json_quoted(*name));
        return;
      }
      const Bytes own = profile_.layers[known->second].parameter_bytes;
      if (tie.bytes > own) {
        faults_.add("profile-tie", place,
                    "has " + std::to_string(own) + " bytes of parameters: expected at least the " +
                        std::to_string(tie.bytes) + " that it shares");
      }
      *names[end] = *name;
    }
    const auto is_same_pair = [&tie](const NamedTie& other) {
      return (other.first == tie.first && other.second == tie.second) ||
             (other.first == tie.second && other.second == tie.first);
    };
    if (tie.first == tie.second) {
      faults_.add("profile-tie", path, "ties a layer to itself: expected two layers");
    } else if (std::any_of(ties_.begin(), ties_.end(), is_same_pair)) {
      faults_.add("profile-tie", path, "ties two layers that are tied already: expected one tie");
    }
    ties_.push_back(std::move(tie));
  }

  /// Once the layers stand in their order.
  void place_ties() {
    const auto place_of = [this](const std::string& name) {
      const auto found = std::find_if(profile_.layers.begin(), profile_.layers.end(),
                                      [&name](const LayerProfile& l) { return l.name == name; });
      return static_cast<std::uint32_t>(found - profile_.layers.begin());
    };
    for (const NamedTie& tie : ties_) {
      const auto [first, second] = std::minmax({place_of(tie.first), place_of(tie.second)});
      profile_.ties.push_back({first, second, tie.bytes});
    }
    std::sort(profile_.ties.begin(), profile_.ties.end());
  }

  void refuse_twin_edges() {
    std::vector<std::pair<LayerEdge, std::size_t>> sorted;
    sorted.reserve(profile_.edges.size());
    for (std::size_t i = 0; i < profile_.edges.size(); ++i) {
      sorted.emplace_back(profile_.edges[i], i);
    }
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].first == sorted[i - 1].first) {
        faults_.add("profile-edge", edge_paths_[sorted[i].second],
                    "duplicate of " + edge_paths_[sorted[i - 1].second]);
      }
    }
  }

  std::string_view file_;
  JsonFaults faults_;
  Profile profile_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::vector<NamedTie> ties_;
  std::vector<std::string> edge_paths_;  ///< by index into Profile::edges
};

std::string samples_to_json(const LayerSamples& samples) {
  std::string out = ", \"samples_us\": {";
  const char* separator = "";
  for (const auto& [name, times] :
       {std::pair("forward", &samples.forward), std::pair("backward", &samples.backward),
        std::pair("backward_input", &samples.backward_input),
        std::pair("update", &samples.update)}) {
    out += separator + json_quoted(name) + ": [";
    for (std::size_t i = 0; i < times->size(); ++i) {
      out += (i == 0 ? "" : ", ") + micros_text((*times)[i]);
    }
    out += "]";
    separator = ", ";
  }
  return out + "}";
}

std::string layer_to_json(const LayerProfile& layer, const LayerSamples* samples) {
  std::string out =
      "{\"name\": " + json_quoted(layer.name) + ", \"forward_us\": " + micros_text(layer.forward);
  const Nanos odd = layer.backward_weight - layer.backward_input;
  if (odd == 0 || odd == 1) {  // What a whole backward is halved into.
    out += ", \"backward_us\": " + micros_text(layer.backward_input + layer.backward_weight);
  } else {
    out += ", \"backward_input_us\": " + micros_text(layer.backward_input) +
           ", \"backward_weight_us\": " + micros_text(layer.backward_weight);
  }
  out += ", \"output_bytes\": " + std::to_string(layer.output_bytes) +
         ", \"saved_bytes\": " + std::to_string(layer.saved_bytes);
  if (layer.saved_for_weight_bytes != layer.saved_bytes) {
    out += ", \"saved_for_weight_bytes\": " + std::to_string(layer.saved_for_weight_bytes);
  }
  out += ", \"parameter_bytes\": " + std::to_string(layer.parameter_bytes);
  if (layer.workspace_bytes != 0) {
    out += ", \"workspace_bytes\": " + std::to_string(layer.workspace_bytes);
  }
  if (layer.update) {
    out += ", \"update_us\": " + micros_text(*layer.update);
  }
  if (samples != nullptr) {
    out += samples_to_json(*samples);
  }
  return out + "}";
}

}  // namespace

Result<Profile> profile_from_json(std::string_view text, std::string_view file) {
  const Result<JsonValue> document = parse_json(text, file);
  if (!document.ok()) {
    return document.error();
  }
  return ProfileReader(file).read(document.value());
}

std::string profile_to_json(const Profile& profile, const std::vector<LayerSamples>& samples) {
  std::string out = "{\n  \"format\": " + json_quoted(kProfileFormat) +
                    ",\n  \"version\": " + std::to_string(kProfileVersion) +
                    ",\n  \"name\": " + json_quoted(profile.name) +
                    ",\n  \"provenance\": " + json_quoted(profile.provenance) +
                    ",\n  \"samples\": " + std::to_string(profile.samples);
  if (profile.data_loading != 0) {
    out += ",\n  \"data_loading_us\": " + micros_text(profile.data_loading);
  }
  out += ",\n  \"layers\": [";
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    out += (i == 0 ? "\n    " : ",\n    ") +
           layer_to_json(profile.layers[i], samples.empty() ? nullptr : &samples[i]);
  }
  out += "\n  ]";
  if (profile.edges != chain_edges(profile.layers.size())) {
    out += ",\n  \"edges\": [";
    for (std::size_t i = 0; i < profile.edges.size(); ++i) {
      const LayerEdge& edge = profile.edges[i];
      out += (i == 0 ? "\n    [" : ",\n    [") + json_quoted(profile.layers[edge.from].name) +
             ", " + json_quoted(profile.layers[edge.to].name) + "]";
    }
    out += "\n  ]";
  }
  for (std::size_t i = 0; i < profile.ties.size(); ++i) {
    const LayerTie& tie = profile.ties[i];
    out += (i == 0 ? ",\n  \"ties\": [\n    " : ",\n    ") + std::string("{\"layers\": [") +
           json_quoted(profile.layers[tie.first].name) + ", " +
           json_quoted(profile.layers[tie.second].name) +
           "], \"bytes\": " + std::to_string(tie.bytes) + "}";
  }
  out += profile.ties.empty() ? "" : "\n  ]";
  return out + "\n}\n";
}

}  // namespace xpipe::ir
