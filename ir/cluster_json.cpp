#include "ir/cluster_json.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ir/strict_json.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kFormat = "xpipe.cluster";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxDevices = std::numeric_limits<std::uint16_t>::max();

class Reader {
 public:
  explicit Reader(std::string_view file) : faults_(file) {}

  Result<Cluster> read(const JsonValue& document) {
    JsonObject root(document, "", faults_);
    root.expect_format(kFormat, kVersion);
    cluster_.name = root.string("name", Need::Optional).value_or("");
    if (const JsonValue::Array* devices = root.array("devices", Need::Required)) {
      if (devices->empty() || devices->size() > kMaxDevices) {
        root.fault("json-range", "devices",
                   "has " + std::to_string(devices->size()) + " devices: expected 1 to " +
                       std::to_string(kMaxDevices));
      }
      for (std::size_t i = 0; i < devices->size() && i < kMaxDevices; ++i) {
        read_device((*devices)[i], "/devices/" + std::to_string(i));
      }
    }
    if (const JsonValue::Array* links = root.array("links", Need::Optional)) {
      for (std::size_t i = 0; i < links->size(); ++i) {
        read_link((*links)[i], "/links/" + std::to_string(i));
      }
    }
    if (const JsonValue* value = root.get("default_link", Need::Optional)) {
      JsonObject object(*value, "/default_link", faults_);
      cluster_.default_link = read_spec(object);
      object.refuse_unknown();
    }
    refuse_shared(root, "shared_links");
    root.refuse_unknown();
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    return std::move(cluster_);
  }

 private:
  static void refuse_shared(JsonObject& object, std::string_view key) {
    if (object.get(key, Need::Optional) != nullptr) {
      object.fault("cluster-shared-link", key,
                   "shared links cannot be simulated yet: expected links of their own");
    }
  }

  void read_device(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    DeviceSpec device;
    const auto index = static_cast<std::uint16_t>(cluster_.devices.size());
    if (std::optional<std::string> name = object.string("name", Need::Optional)) {
      if (!by_name_.emplace(*name, DeviceId{index}).second) {
        object.fault("cluster-device", "name",
                     "another device is called " + json_quoted(*name) + " too");
      }
      device.name = std::move(*name);
    }
    device.speed = object.positive("speed", Need::Optional).value_or(1.0);
    device.memory_bytes = object.bytes("memory_bytes", Need::Optional);
    device.memory_bandwidth_bytes_per_s =
        object.positive("memory_bandwidth_bytes_per_s", Need::Optional);
    object.refuse_unknown();
    cluster_.devices.push_back(std::move(device));
  }

  LinkSpec read_spec(JsonObject& object) {
    LinkSpec spec;
    spec.bandwidth_bytes_per_s = object.positive("bandwidth_bytes_per_s", Need::Optional);
    spec.latency = object.micros("latency_us", Need::Optional).value_or(0);
    const std::optional<std::string> duplex = object.string("duplex", Need::Optional);
    if (duplex == "half") {
      spec.duplex = Duplex::Half;
    } else if (duplex && *duplex != "full") {
      object.fault("json-range", "duplex",
                   "expected \"full\" or \"half\", found " + json_quoted(*duplex));
    }
    refuse_shared(object, "via");
    return spec;
  }

  std::optional<DeviceId> device(JsonObject& object, std::string_view key) {
    const JsonValue* value = object.get(key, Need::Required);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (const auto* name = std::get_if<std::string>(&value->value)) {
      const auto known = by_name_.find(*name);
      if (known != by_name_.end()) {
        return known->second;
      }
      object.fault("cluster-link", key, "no device is called " + json_quoted(*name));
      return std::nullopt;
    }
    const auto* index = std::get_if<std::int64_t>(&value->value);
    if (index == nullptr || *index < 0 ||
        *index >= static_cast<std::int64_t>(cluster_.devices.size())) {
      object.fault(index == nullptr ? "json-type" : "json-range", key,
                   "expected the name of a device or its index, below " +
                       std::to_string(cluster_.devices.size()) + ", found " + value->shown());
      return std::nullopt;
    }
    return DeviceId{static_cast<std::uint16_t>(*index)};
  }

  void read_link(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    Link link;
    const std::optional<DeviceId> from = device(object, "from");
    const std::optional<DeviceId> to = device(object, "to");
    link.spec = read_spec(object);
    link.symmetric = object.boolean("symmetric", Need::Optional).value_or(true);
    object.refuse_unknown();
    if (!from || !to) {
      return;
    }
    link.from = *from;
    link.to = *to;
    if (link.from == link.to) {
      faults_.add("cluster-link", path, "goes from a device to itself: expected two devices");
      return;
    }
    claim(link.from, link.to, path);
    if (link.symmetric) {
      claim(link.to, link.from, path);
    }
    cluster_.links.push_back(link);
  }

  void claim(DeviceId from, DeviceId to, const std::string& path) {
    const auto [first, is_new] = directions_.emplace(std::pair(from, to), path);
    if (!is_new && first->second != path) {
      const std::string pair =
          std::to_string(index_of(from)) + " to " + std::to_string(index_of(to));
      faults_.add("cluster-link", path,
                  "duplicate: " + first->second + " gives the link from device " + pair +
                      " already; expected each direction once (\"symmetric\": false for one "
                      "direction alone)");
    }
  }

  JsonFaults faults_;
  Cluster cluster_;
  std::map<std::string, DeviceId, std::less<>> by_name_;
  std::map<std::pair<DeviceId, DeviceId>, std::string> directions_;  ///< to the path of the link
};

}  // namespace

Result<Cluster> cluster_from_json(std::string_view text, std::string_view file) {
  const Result<JsonValue> document = parse_json(text, file);
  if (!document.ok()) {
    return document.error();
  }
  return Reader(file).read(document.value());
}

}  // namespace xpipe::ir
