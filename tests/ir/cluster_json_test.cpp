#include "ir/cluster_json.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ir/refusals.h"
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
  CHECK(cluster.sharing == Sharing::FirstCome);
  CHECK(cluster.all_reduce == AllReduceKind::Ring);
}

//   a machine of two devices, another of one; a network card each, a bus in the first
constexpr std::string_view kShared = R"({"format": "xpipe.cluster", "version": 1,
 "provenance": "made up", "sharing": "max-min", "all_reduce": "tree",
 "devices": [{"overlap_slowdown": 1.25, "launch_overhead_us": 4.5}, {}, {"name": "far"}],
 "shared_links": [{"name": "bus", "duplex": "half"},
                  {"name": "nic0", "bandwidth_bytes_per_s": 1.25e9, "latency_us": 20},
                  {"name": "nic1", "bandwidth_bytes_per_s": 3e9}],
 "links": [{"from": [0, 1], "to": "far", "via": ["bus", "nic0", "nic1"], "latency_us": 1}],
 "default_link": {"bandwidth_bytes_per_s": 1e10, "via": ["bus"]}}
)";

TEST_CASE("cluster: shared links, what crosses them and how they are shared are read as written") {
  const Result<Cluster> read = cluster_from_json(kShared, "c.json");
  REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().to_string()));
  const Cluster& cluster = read.value();
  CHECK_EQ(cluster.provenance, "made up");
  CHECK_EQ(cluster.devices[0].overlap_slowdown, 1.25);
  CHECK_EQ(cluster.devices[0].launch_overhead, 4500);
  CHECK(cluster.sharing == Sharing::MaxMin);
  CHECK(cluster.all_reduce == AllReduceKind::Tree);
  REQUIRE_EQ(cluster.shared_links.size(), 3);
  CHECK(cluster.shared_links[0] == SharedLink{"bus", {std::nullopt, 0, Duplex::Half}});
  CHECK(cluster.shared_links[1] == SharedLink{"nic0", {1.25e9, 20000, Duplex::Full}});
  const std::vector<SharedLinkId> way = {SharedLinkId{0}, SharedLinkId{1}, SharedLinkId{2}};
  REQUIRE_EQ(cluster.links.size(), 2);
  CHECK(cluster.links[1] ==
        Link{DeviceId{1}, DeviceId{2}, true, {std::nullopt, 1000, Duplex::Full}, way});
  CHECK(cluster.default_via == std::vector{SharedLinkId{0}});
}

TEST_CASE("cluster: two lists join each of the one with each of the other, no pair twice") {
  const auto links = [](std::string_view link) {
    const Result<Cluster> read = cluster_from_json(
        R"({"format": "xpipe.cluster", "version": 1, "devices": [{}, {}, {}, {}], "links": [)" +
            std::string(link) + "]}",
        "c.json");
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().to_string()));
    std::string pairs;
    for (const Link& l : read.value().links) {
      pairs += std::to_string(index_of(l.from)) + (l.symmetric ? "-" : ">") +
               std::to_string(index_of(l.to)) + " ";
    }
    return pairs;
  };
  CHECK_EQ(links(R"({"from": [0, 1], "to": [2, 3]})"), "0-2 0-3 1-2 1-3 ");
  CHECK_EQ(links(R"({"from": [0, 1, 2], "to": [0, 1, 2]})"), "0-1 0-2 1-2 ");
  CHECK_EQ(links(R"({"from": [0, 1], "to": [1, 2], "symmetric": false})"), "0>1 0>2 1>2 ");
  CHECK_EQ(links(R"({"from": [0, 1], "to": [0, 1], "symmetric": false})"), "0>1 1>0 ");
}

TEST_CASE("cluster: what is written reads back as the same cluster, and as the same bytes") {
  for (const std::string_view text : {kThree, kShared}) {
    const Result<Cluster> cluster = cluster_from_json(text, "c.json");
    REQUIRE(cluster.ok());
    const std::string written = cluster_to_json(cluster.value());
    const Result<Cluster> again = cluster_from_json(written, "again.json");
    REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.error().to_string()));
    CHECK(again.value() == cluster.value());
    CHECK_EQ(cluster_to_json(again.value()), written);
  }
}

TEST_CASE("cluster: a slip among the shared links is refused with its path, all at once") {
  tests::check_refusals(
      kShared, cluster_from_json,
      {
          {"\"bus\", \"nic0\", \"nic1\"", "\"bus\", \"nic0\", \"nic0\"", "/links/0/via/2",
           "\"nic0\" is crossed twice"},
          {"\"bus\", \"nic0\", \"nic1\"", "\"bus\", \"nic0\", \"nic0\"", "/shared_links/2",
           "no link crosses \"nic1\""},
          {"\"bus\", \"nic0\", \"nic1\"", "\"bus\", \"nic0\", 2", "/links/0/via/2",
           "expected the name of a shared link, found 2"},
          {"{\"name\": \"nic1\"", "{\"name\": \"nic0\"", "/shared_links/2/name", "duplicate"},
          {"{\"name\": \"nic1\"", "{\"nam\": \"nic1\"", "/shared_links/2/name", "is missing"},
          {"3e9", "-3e9", "/shared_links/2/bandwidth_bytes_per_s", "found -3e9"},
          {"\"half\"}", "\"maybe\"}", "/shared_links/0/duplex", "found \"maybe\""},
          {"\"latency_us\": 20", "\"latency\": 20", "/shared_links/1/latency", "unknown key"},
          {"\"via\": [\"bus\"]}", "\"via\": [\"buss\"]}", "/default_link/via/0", "\"buss\""},
          {"\"via\": [\"bus\"]}", "\"via\": \"bus\"}", "/default_link/via", "expected"},
      });
}

TEST_CASE("cluster: every fault is told at once, and none that only follows from another") {
  const Result<Cluster> cluster = cluster_from_json(
      R"({"format": "xpipe.cluster", "version": 1, "devices": [{}, {"overlap_slowdown": 0.5}],
 "shared_links": [{"name": "s"}, {"name": "s"}, {"name": "unused"}],
 "links": [{"from": 0, "to": 1, "via": ["s", "s", "t"]}, {"from": 1, "to": 1}],
 "sharing": "fair"})",
      "c.json");
  REQUIRE_FALSE(cluster.ok());
  std::vector<std::string> places;
  for (const Diagnostic& fault : cluster.error().diagnostics) {
    places.push_back(fault.where.substr(fault.where.find('/')));
  }
  CHECK(places == std::vector<std::string>{"/devices/1/overlap_slowdown", "/shared_links/1/name",
                                           "/links/0/via/1", "/links/0/via/2", "/links/1",
                                           "/sharing", "/shared_links/2"});
}

TEST_CASE("cluster: two long lists of devices are refused before billions of links are made") {
  std::string devices;
  std::string list;
  for (int i = 0; i < 2000; ++i) {
    devices += (i == 0 ? "{}" : ",{}");
    list += (i == 0 ? "" : ",") + std::to_string(i);
  }
  const Result<Cluster> cluster =
      cluster_from_json(R"({"format": "xpipe.cluster", "version": 1, "devices": [)" + devices +
                            R"(], "links": [{"from": [)" + list + R"(], "to": [)" + list + "]}]}",
                        "c.json");
  REQUIRE_FALSE(cluster.ok());
  CHECK(cluster.error().to_string().find("joins 4000000 pairs") != std::string::npos);
}

TEST_CASE("cluster: one direction each way is two links, not a pair listed twice") {
  const std::string text =
      edited(kThree, {{"\"symmetric\": false}",
                       "\"symmetric\": false}, {\"from\": 2, \"to\": 1, \"symmetric\": false}"}});
  CHECK(cluster_from_json(text, "c.json").ok());
}

TEST_CASE("cluster: what does not belong is refused with its path") {
  tests::check_refusals(
      kThree, cluster_from_json,
      {
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
          {"\"duplex\": \"half\"", "\"via\": [\"switch0\"]", "/links/0/via/0",
           "no shared link is called \"switch0\""},
          {"\"speed\": 0.5", "\"overlap_slowdown\": 0.9", "/devices/0/overlap_slowdown",
           "at least 1 (no slow-down), found 0.9"},
          {"\"speed\": 0.5", "\"launch_overhead_us\": -1", "/devices/0/launch_overhead_us",
           "found -1"},
          {"\"version\": 1,", "\"version\": 1, \"sharing\": \"fair\",", "/sharing",
           "expected \"first-come\" or \"max-min\", found \"fair\""},
          {"\"version\": 1,", "\"version\": 1, \"all_reduce\": \"star\",", "/all_reduce",
           "expected \"ring\" or \"tree\", found \"star\""},
          {"\"to\": \"b\"", "\"to\": []", "/links/0/to", "is empty"},
          {"\"to\": \"b\"", "\"to\": [1, \"b\"]", "/links/0/to/1", "stands in the list already"},
          {"\"to\": \"b\"", "\"to\": [1, 9]", "/links/0/to/1", "below 3, found 9"},
          {"{\"name\": \"b\"}", "7", "/devices/1", "expected an object, found 7"},
      });
}

}  // namespace xpipe::ir
