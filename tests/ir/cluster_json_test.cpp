#include "ir/cluster_json.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;

constexpr std::string_view kThree = R"({"format": "xpipe.cluster", "version": 1, "name": "three",
 "devices": [{"name": "a", "speed": 0.5, "memory_bytes": 1024, "memory_bandwidth_bytes_per_s": 9e11},
             {"name": "b"}, {}],
 "links": [{"from": 0, "to": "b", "bandwidth_bytes_per_s": 1.25e10, "latency_us": 5.5, "duplex": "half"},
           {"from": 1, "to": 2, "symmetric": false}],
 "default_link": {"latency_us": 10}}
)";

}  // namespace

TEST_CASE("cluster: devices, links and defaults are read as written") {
  const Result<Cluster> read = cluster_from_json(kThree, "c.json");
  REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().to_string()));
  const Cluster& cluster = read.value();
  CHECK_EQ(cluster.name, "three");
  REQUIRE_EQ(cluster.devices.size(), 3);
  CHECK(cluster.devices[0] == DeviceSpec{"a", 0.5, 1024, 9e11});
  CHECK(cluster.devices[2] == DeviceSpec{"", 1.0, std::nullopt, std::nullopt});
  REQUIRE_EQ(cluster.links.size(), 2);
  CHECK(cluster.links[0] == Link{DeviceId{0}, DeviceId{1}, true, {1.25e10, 5500, Duplex::Half}});
  CHECK(cluster.links[1] == Link{DeviceId{1}, DeviceId{2}, false, {std::nullopt, 0, Duplex::Full}});
  CHECK(cluster.default_link == LinkSpec{std::nullopt, 10000, Duplex::Full});
}

TEST_CASE("cluster: one direction each way is two links, not a pair listed twice") {
  const std::string text =
      edited(kThree, {{"\"symmetric\": false}",
                       "\"symmetric\": false}, {\"from\": 2, \"to\": 1, \"symmetric\": false}"}});
  CHECK(cluster_from_json(text, "c.json").ok());
}

TEST_CASE("cluster: what does not belong is refused with its path") {
  struct Case {
    std::string from;
    std::string to;
    std::string_view where;
    std::string_view says;
  };

  for (const Case& c : std::vector<Case>{
           {"\"half\"", "\"maybe\"", "/links/0/duplex", "found \"maybe\""},
           {"\"from\": 0", "\"from\": 3", "/links/0/from", "below 3, found 3"},
           {"\"to\": \"b\"", "\"to\": \"z\"", "/links/0/to", "no device is called \"z\""},
           {"\"to\": \"b\", ", "", "/links/0/to", "is missing"},
           {"\"to\": \"b\"", "\"to\": 0", "/links/0", "to itself"},
           {"\"from\": 1, \"to\": 2, \"symmetric\": false",
            "\"from\": 1, \"to\": 0, \"symmetric\": false", "/links/1",
            "/links/0 gives the link from device 1 to 0 already"},
           {"1.25e10", "0", "/links/0/bandwidth_bytes_per_s", "greater than 0, found 0"},
           {"1.25e10", "\"25GB/s\"", "/links/0/bandwidth_bytes_per_s", "found the string"},
           {"\"speed\": 0.5", "\"speed\": -1", "/devices/0/speed", "found -1"},
           {"\"speed\": 0.5", "\"seed\": 1", "/devices/0/seed", "unknown key"},
           {"\"name\": \"b\"", "\"name\": \"a\"", "/devices/1/name",
            "another device is called \"a\""},
           {"\"latency_us\": 5.5", "\"latency_us\": -5.5", "/links/0/latency_us", "found -5.5"},
           {"\"duplex\": \"half\"", "\"via\": [\"switch0\"]", "/links/0/via",
            "shared links cannot be simulated yet"},
           {"\"version\": 1,", "\"version\": 1, \"shared_links\": [],", "/shared_links",
            "shared links cannot be simulated yet"},
           {"{\"name\": \"b\"}", "7", "/devices/1", "expected an object, found 7"},
       }) {
    CAPTURE(c.to);
    const Result<Cluster> cluster = cluster_from_json(edited(kThree, {{c.from, c.to}}), "c.json");
    REQUIRE_FALSE(cluster.ok());
    const std::string told = cluster.error().to_string();
    CAPTURE(told);
    CHECK(told.find("c.json: " + std::string(c.where) + ": ") != std::string::npos);
    CHECK(told.find(c.says) != std::string::npos);
  }
}

}  // namespace xpipe::ir
