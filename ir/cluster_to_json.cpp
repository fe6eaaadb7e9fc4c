#include <string>
#include <vector>

#include "ir/cluster_json.h"
#include "ir/decimal.h"
#include "ir/strict_json.h"

namespace xpipe::ir {

namespace {

class ClusterWriter {
 public:
  explicit ClusterWriter(const Cluster& cluster) : cluster_(cluster) {}

  std::string write() && {
    out_ = "{\n  \"format\": \"xpipe.cluster\",\n  \"version\": 1";
    out_ += ",\n  \"name\": " + json_quoted(cluster_.name);
    out_ += ",\n  \"provenance\": " + json_quoted(cluster_.provenance);
    write_list("devices", cluster_.devices);
    write_list("shared_links", cluster_.shared_links);
    write_list("links", cluster_.links);
    if (cluster_.default_link) {
      out_ += ",\n  \"default_link\": {" +
              join({spec_text(*cluster_.default_link), via_text(cluster_.default_via)}) + "}";
    }
    out_ += ",\n  \"sharing\": " + json_quoted(sharing_name(cluster_.sharing));
    out_ += ",\n  \"all_reduce\": " + json_quoted(all_reduce_name(cluster_.all_reduce));
    return std::move(out_) + "\n}\n";
  }

 private:
  static std::string join(const std::vector<std::string>& members) {
    std::string text;
    for (const std::string& member : members) {
      text += (text.empty() || member.empty() ? "" : ", ") + member;
    }
    return text;
  }

  template <typename Item>
  void write_list(std::string_view key, const std::vector<Item>& items) {
    if (items.empty()) {
      return;
    }
    out_ += ",\n  " + json_quoted(key) + ": [";
    for (std::size_t i = 0; i < items.size(); ++i) {
      out_ += (i == 0 ? "\n    {" : ",\n    {") + item_text(items[i]) + "}";
    }
    out_ += "\n  ]";
  }

  [[nodiscard]] static std::string item_text(const DeviceSpec& device) {
    std::vector<std::string> members;
    if (!device.name.empty()) {
      members.push_back("\"name\": " + json_quoted(device.name));
    }
    members.push_back("\"speed\": " + number_text(device.speed));
    if (device.memory_bytes) {
      members.push_back("\"memory_bytes\": " + std::to_string(*device.memory_bytes));
    }
    if (device.memory_bandwidth_bytes_per_s) {
      members.push_back("\"memory_bandwidth_bytes_per_s\": " +
                        number_text(*device.memory_bandwidth_bytes_per_s));
    }
    if (device.overlap_slowdown != 1.0) {
      members.push_back("\"overlap_slowdown\": " + number_text(device.overlap_slowdown));
    }
    if (device.launch_overhead != 0) {
      members.push_back("\"launch_overhead_us\": " + micros_text(device.launch_overhead));
    }
    return join(members);
  }

  [[nodiscard]] static std::string spec_text(const LinkSpec& spec) {
    const std::string bandwidth =
        spec.bandwidth_bytes_per_s
            ? "\"bandwidth_bytes_per_s\": " + number_text(*spec.bandwidth_bytes_per_s)
            : "";
    return join({bandwidth, "\"latency_us\": " + micros_text(spec.latency),
                 "\"duplex\": " + json_quoted(duplex_name(spec.duplex))});
  }

  [[nodiscard]] static std::string item_text(const SharedLink& shared) {
    return join({"\"name\": " + json_quoted(shared.name), spec_text(shared.spec)});
  }

  [[nodiscard]] std::string via_text(const std::vector<SharedLinkId>& via) const {
    std::vector<std::string> names;
    names.reserve(via.size());
    for (const SharedLinkId id : via) {
      names.push_back(json_quoted(cluster_.shared_links[index_of(id)].name));
    }
    return via.empty() ? "" : "\"via\": [" + join(names) + "]";
  }

  [[nodiscard]] std::string item_text(const Link& link) const {
    return join({"\"from\": " + std::to_string(index_of(link.from)),
                 "\"to\": " + std::to_string(index_of(link.to)), spec_text(link.spec),
                 via_text(link.via), link.symmetric ? "" : "\"symmetric\": false"});
  }

  const Cluster& cluster_;
  std::string out_;
};

}  // namespace

std::string cluster_to_json(const Cluster& cluster) {
  return ClusterWriter(cluster).write();
}

std::string_view sharing_name(Sharing sharing) {
  return sharing == Sharing::FirstCome ? "first-come" : "max-min";
}

std::string_view all_reduce_name(AllReduceKind kind) {
  return kind == AllReduceKind::Ring ? "ring" : "tree";
}

std::string_view duplex_name(Duplex duplex) {
  return duplex == Duplex::Full ? "full" : "half";
}

}  // namespace xpipe::ir
