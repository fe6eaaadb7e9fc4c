// The manifest's text form, read strictly.
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "executor/torch/checkpoint_files.h"
#include "ir/decimal.h"
#include "ir/strict_json.h"

namespace xpipe::executor::nn {

namespace {

using ir::JsonObject;
using ir::JsonValue;
using ir::Need;

constexpr std::string_view kFormat = "xpipe.checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string hexadecimal(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[15 - i] = "0123456789abcdef"[(number >> (4 * i)) & 15U];
  }
  return text;
}

std::optional<std::uint64_t> from_hexadecimal(const std::string& text) {
  std::uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto read = std::from_chars(text.data(), last, number, 16);
  const bool whole = read.ec == std::errc() && read.ptr == last && text.size() == 16;
  return whole ? std::optional(number) : std::nullopt;
}

std::optional<double> from_exact(const std::string& text) {
  double number = 0.0;
  const char* const last = text.data() + text.size();
  const auto read = std::from_chars(text.data(), last, number);
  return read.ec == std::errc() && read.ptr == last ? std::optional(number) : std::nullopt;
}

class Reader {
 public:
  explicit Reader(std::string_view file) : faults_(file) {}

  ir::Result<CheckpointManifest> read(const JsonValue& document) {
    JsonObject root(document, "", faults_);
    root.expect_format(kFormat, kVersion);
    CheckpointManifest manifest;
    manifest.mini_batches = count(root, "mini_batches");
    manifest.steps = count(root, "steps");
    if (const JsonValue* position = root.get("position", Need::Required)) {
      JsonObject object(*position, "/position", faults_);
      manifest.position.epoch = static_cast<std::uint32_t>(count(object, "epoch", kMost32));
      manifest.position.mini_batch =
          static_cast<std::uint32_t>(count(object, "mini_batch", kMost32));
      object.refuse_unknown();
    }
    if (const JsonValue* epoch = root.get("epoch_so_far", Need::Required)) {
      JsonObject object(*epoch, "/epoch_so_far", faults_);
      manifest.epoch.samples = count(object, "samples");
      manifest.epoch.loss = number(object, "loss_sum");
      manifest.epoch.accuracy = number(object, "accuracy_sum");
      manifest.epoch.train_time = static_cast<ir::Nanos>(count(object, "train_ns"));
      object.refuse_unknown();
    }
    root.string("checksum", Need::Required);
    manifest.fixed = settings(root, "settings");
    manifest.free = settings(root, "free_settings");
    if (const JsonValue::Array* layers = root.array("layers", Need::Required)) {
      for (std::size_t i = 0; i < layers->size(); ++i) {
        manifest.layers.push_back(layer((*layers)[i], "/layers/" + std::to_string(i)));
      }
    }
    root.refuse_unknown();
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    return manifest;
  }

 private:
  static constexpr std::int64_t kMost32 = std::numeric_limits<std::uint32_t>::max();

  std::uint64_t count(JsonObject& object, std::string_view key, std::int64_t most = kMost) {
    return static_cast<std::uint64_t>(object.integer(key, 0, most, Need::Required).value_or(0));
  }

  double number(JsonObject& object, std::string_view key) {
    const std::optional<std::string> text = object.string(key, Need::Required);
    const std::optional<double> value = text ? from_exact(*text) : std::nullopt;
    if (text && !value) {
      object.fault("json-range", key, "expected a number as text, found " + *text);
    }
    return value.value_or(0.0);
  }

  Settings settings(JsonObject& root, std::string_view key) {
    Settings read;
    if (const JsonValue::Object* members = root.object(key, Need::Required)) {
      for (const ir::JsonMember& member : *members) {
        if (const auto* text = member.value.as<std::string>()) {
          read[member.key] = *text;
        } else {
          faults_.add("json-type", root.path_of(key) + "/" + member.key,
                      "expected a string, found " + member.value.shown());
        }
      }
    }
    return read;
  }

  LayerFile layer(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    LayerFile read;
    read.layer = object.string("layer", Need::Required).value_or("");
    read.file = object.string("file", Need::Required).value_or("");
    if (read.file.empty() || read.file.find('/') != std::string::npos || read.file[0] == '.') {
      object.fault("json-range", "file", "expected the name of a file beside the manifest");
    }
    if (!files_.insert(read.file).second) {
      object.fault("json-range", "file", "stands twice: expected a file a layer");
    }
    read.bytes = object.bytes("bytes", Need::Required).value_or(0);
    const std::optional<std::string> checksum = object.string("fnv1a", Need::Required);
    const std::optional<std::uint64_t> parsed =
        checksum ? from_hexadecimal(*checksum) : std::nullopt;
    if (checksum && !parsed) {
      object.fault("json-range", "fnv1a", "expected 16 hexadecimal digits, found " + *checksum);
    }
    read.checksum = parsed.value_or(0);
    object.refuse_unknown();
    return read;
  }

  ir::JsonFaults faults_;
  std::set<std::string> files_;
};

/// The last key of a manifest: the checksum of all the text before it.
std::string closing(std::string_view before) {
  return ",\n  \"checksum\": \"" + hexadecimal(fnv1a(before)) + "\"\n}\n";
}

}  // namespace

std::string manifest_to_json(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json = {
      {"format", kFormat},
      {"version", kVersion},
      {"mini_batches", manifest.mini_batches},
      {"steps", manifest.steps},
      {"position",
       {{"epoch", manifest.position.epoch}, {"mini_batch", manifest.position.mini_batch}}},
      {"epoch_so_far",
       {{"samples", manifest.epoch.samples},
        {"loss_sum", ir::number_text(manifest.epoch.loss)},
        {"accuracy_sum", ir::number_text(manifest.epoch.accuracy)},
        {"train_ns", manifest.epoch.train_time}}}};
  json["settings"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : manifest.fixed) {
    json["settings"][name] = value;
  }
  json["free_settings"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : manifest.free) {
    json["free_settings"][name] = value;
  }
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerFile& layer : manifest.layers) {
    json["layers"].push_back({{"layer", layer.layer},
                              {"file", layer.file},
                              {"bytes", layer.bytes},
                              {"fnv1a", hexadecimal(layer.checksum)}});
  }
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // less "\n}"
  return text + closing(text);
}

ir::Result<CheckpointManifest> manifest_from_json(std::string_view text, std::string_view file) {
  const std::size_t length = closing("").size();
  const std::string_view before = text.substr(0, text.size() - std::min(text.size(), length));
  if (text.substr(before.size()) != closing(before)) {
    return ir::make_error(ir::ErrorKind::BadInput, "checkpoint-damaged", std::string(file),
                          "is not what was written: its checksum differs");
  }
  const ir::Result<JsonValue> document = ir::parse_json(text, file);
  if (!document.ok()) {
    return document.error();
  }
  return Reader(file).read(document.value());
}

}  // namespace xpipe::executor::nn
