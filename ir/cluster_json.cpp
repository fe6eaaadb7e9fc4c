#include "ir/cluster_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/strict_json.h"

namespace xpipe::ir {

namespace {

constexpr std::string_view kClusterFormat = "xpipe.cluster";
constexpr std::int64_t kClusterVersion = 1;
constexpr std::size_t kMaxDevices = std::numeric_limits<std::uint16_t>::max();

class ClusterReader {
 public:
  explicit ClusterReader(std::string_view file) : faults_(file) {}

  Result<Cluster> read(const JsonValue& document) {
    JsonObject root(document, "", faults_);
    root.expect_format(kClusterFormat, kClusterVersion);
    cluster_.name = root.string("name", Need::Optional).value_or("");
    cluster_.provenance = root.string("provenance", Need::Optional).value_or("");
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
    if (const JsonValue::Array* shared = root.array("shared_links", Need::Optional)) {
      for (std::size_t i = 0; i < shared->size(); ++i) {
        read_shared((*shared)[i], "/shared_links/" + std::to_string(i));
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
      cluster_.default_via = read_via(object);
      object.refuse_unknown();
    }
    cluster_.sharing = choice(root, "sharing", {Sharing::FirstCome, Sharing::MaxMin}, sharing_name);
    cluster_.all_reduce =
        choice(root, "all_reduce", {AllReduceKind::Ring, AllReduceKind::Tree}, all_reduce_name);
    root.refuse_unknown();
    refuse_unused_shared();
    if (!faults_.empty()) {
      return std::move(faults_).error();
    }
    return std::move(cluster_);
  }

 private:
  /// One of two words; the first is the default.
  template <typename Value>
  static Value choice(JsonObject& object,
                      std::string_view key,
                      const Value (&values)[2],
                      std::string_view (*name)(Value)) {
    const std::optional<std::string> word = object.string(key, Need::Optional);
    if (!word || *word == name(values[0])) {
      return values[0];
    }
    if (*word != name(values[1])) {
      object.fault("json-range", key,
                   "expected " + json_quoted(name(values[0])) + " or " +
                       json_quoted(name(values[1])) + ", found " + json_quoted(*word));
    }
    return values[1];
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
    device.overlap_slowdown = object.positive("overlap_slowdown", Need::Optional).value_or(1.0);
    if (device.overlap_slowdown < 1.0) {
      object.fault("json-range", "overlap_slowdown",
                   "expected at least 1 (no slow-down), found " +
                       object.get("overlap_slowdown", Need::Optional)->shown());
    }
    device.launch_overhead = object.micros("launch_overhead_us", Need::Optional).value_or(0);
    object.refuse_unknown();
    cluster_.devices.push_back(std::move(device));
  }

  void read_shared(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    SharedLink shared;
    const SharedLinkId id{static_cast<std::uint32_t>(cluster_.shared_links.size())};
    bool can_be_named = false;
    if (std::optional<std::string> name = object.string("name", Need::Required)) {
      can_be_named = shared_by_name_.emplace(*name, id).second;
      if (!can_be_named) {
        object.fault("cluster-shared-link", "name",
                     "duplicate: another shared link is called " + json_quoted(*name) + " too");
      }
      shared.name = std::move(*name);
    }
    shared.spec = read_spec(object);
    object.refuse_unknown();
    cluster_.shared_links.push_back(std::move(shared));
    crossed_.push_back(!can_be_named);  // what is wrong with its name is said already
  }

  static LinkSpec read_spec(JsonObject& object) {
    LinkSpec spec;
    spec.bandwidth_bytes_per_s = object.positive("bandwidth_bytes_per_s", Need::Optional);
    spec.latency = object.micros("latency_us", Need::Optional).value_or(0);
    spec.duplex = choice(object, "duplex", {Duplex::Full, Duplex::Half}, duplex_name);
    return spec;
  }

  std::vector<SharedLinkId> read_via(JsonObject& object) {
    std::vector<SharedLinkId> via;
    const JsonValue::Array* names = object.array("via", Need::Optional);
    for (std::size_t i = 0; names != nullptr && i < names->size(); ++i) {
      const JsonValue& value = (*names)[i];
      const std::string place = object.path_of("via") + "/" + std::to_string(i);
      const auto* name = std::get_if<std::string>(&value.value);
      if (name == nullptr) {
        faults_.add("json-type", place,
                    "expected the name of a shared link, found " + value.shown());
        continue;
      }
      const auto known = shared_by_name_.find(*name);
      if (known == shared_by_name_.end()) {
        faults_.add(
            "cluster-via", place,
            "no shared link is called " + json_quoted(*name) + "; expected one of shared_links");
      } else if (std::ranges::find(via, known->second) != via.end()) {
        faults_.add("cluster-via", place,
                    json_quoted(*name) + " is crossed twice; expected each shared link once");
      } else {
        via.push_back(known->second);
        crossed_[index_of(known->second)] = true;
      }
    }
    return via;
  }

  void refuse_unused_shared() {
    for (std::size_t i = 0; i < crossed_.size(); ++i) {
      if (!crossed_[i]) {
        faults_.add("cluster-shared-link", "/shared_links/" + std::to_string(i),
                    "no link crosses " + json_quoted(cluster_.shared_links[i].name) +
                        "; name it in a link's \"via\" or drop it");
      }
    }
  }

  std::optional<DeviceId> device(const JsonValue& value, const std::string& place) {
    if (const auto* name = std::get_if<std::string>(&value.value)) {
      const auto known = by_name_.find(*name);
      if (known != by_name_.end()) {
        return known->second;
      }
      faults_.add("cluster-link", place, "no device is called " + json_quoted(*name));
      return std::nullopt;
    }
    const auto* index = std::get_if<std::int64_t>(&value.value);
    if (index == nullptr || *index < 0 ||
        *index >= static_cast<std::int64_t>(cluster_.devices.size())) {
      faults_.add(index == nullptr ? "json-type" : "json-range", place,
                  "expected the name of a device or its index, below " +
                      std::to_string(cluster_.devices.size()) + ", found " + value.shown());
      return std::nullopt;
    }
    return DeviceId{static_cast<std::uint16_t>(*index)};
  }

  /// One device or a list of them; empty after a fault.
  std::vector<DeviceId> devices(JsonObject& object, const std::string& key) {
    const JsonValue* value = object.get(key, Need::Required);
    if (value == nullptr) {
      return {};
    }
    const auto* list = std::get_if<JsonValue::Array>(&value->value);
    if (list == nullptr) {
      const std::optional<DeviceId> one = device(*value, object.path_of(key));
      return one ? std::vector{*one} : std::vector<DeviceId>{};
    }
    if (list->empty()) {
      object.fault("json-range", key, "is empty: expected at least one device");
    }
    std::vector<DeviceId> all;
    std::set<DeviceId> seen;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string place = object.path_of(key) + "/" + std::to_string(i);
      const std::optional<DeviceId> one = device((*list)[i], place);
      if (one && !seen.insert(*one).second) {
        faults_.add("cluster-link", place, "this device stands in the list already");
      } else if (one) {
        all.push_back(*one);
      }
    }
    return all.size() == list->size() ? all : std::vector<DeviceId>{};
  }

  void read_link(const JsonValue& value, const std::string& path) {
    JsonObject object(value, path, faults_);
    const std::vector<DeviceId> from = devices(object, "from");
    const std::vector<DeviceId> to = devices(object, "to");
    Link link;
    link.spec = read_spec(object);
    link.via = read_via(object);
    link.symmetric = object.boolean("symmetric", Need::Optional).value_or(true);
    object.refuse_unknown();
    if (from.size() * to.size() > kMaxLinks - cluster_.links.size()) {
      faults_.add("json-range", path,
                  "joins " + std::to_string(from.size() * to.size()) +
                      " pairs of devices: expected at most " + std::to_string(kMaxLinks) +
                      " links in all");
      return;
    }
    if (from.size() == 1 && from == to) {
      faults_.add("cluster-link", path, "goes from a device to itself: expected two devices");
      return;
    }
    for (const DeviceId a : from) {
      for (const DeviceId b : to) {
        link.from = a;
        link.to = b;
        if (a != b && claim(link, path)) {
          cluster_.links.push_back(link);
        }
      }
    }
  }

  /// Whether the link is new. Of two lists that overlap, the second way of a symmetric pair is not.
  bool claim(const Link& link, const std::string& path) {
    const auto take = [&](DeviceId from, DeviceId to) {
      const auto [first, is_new] = directions_.emplace(std::pair(from, to), path);
      if (!is_new && first->second != path) {
        const std::string pair =
            std::to_string(index_of(from)) + " to " + std::to_string(index_of(to));
        faults_.add("cluster-link", path,
                    "duplicate: " + first->second + " gives the link from device " + pair +
                        " already; expected each direction once (\"symmetric\": false for one "
                        "direction alone)");
      }
      return is_new;
    };
    const bool is_new = take(link.from, link.to);
    return (!link.symmetric || take(link.to, link.from)) && is_new;
  }

  JsonFaults faults_;
  Cluster cluster_;
  std::map<std::string, DeviceId, std::less<>> by_name_;
  std::map<std::string, SharedLinkId, std::less<>> shared_by_name_;
  std::vector<bool> crossed_;                                        ///< by SharedLinkId
  std::map<std::pair<DeviceId, DeviceId>, std::string> directions_;  ///< to the path of the link
};

}  // namespace

Result<Cluster> cluster_from_json(std::string_view text, std::string_view file) {
  const Result<JsonValue> document = parse_json(text, file);
  if (!document.ok()) {
    return document.error();
  }
  return ClusterReader(file).read(document.value());
}

}  // namespace xpipe::ir
