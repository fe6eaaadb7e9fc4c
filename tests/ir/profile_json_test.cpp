#include "ir/profile_json.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ir/refusals.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;

constexpr std::string_view kChain = R"({"format": "xpipe.profile", "version": 1,
 "name": "tiny", "provenance": "synthetic", "samples": 64, "data_loading_us": 1500.25,
 "layers": [
  {"name": "conv", "forward_us": 12.5, "backward_us": 25.001,
   "output_bytes": 4096, "saved_bytes": 8192, "parameter_bytes": 1728},
  {"name": "relu", "forward_us": 0, "backward_us": 0,
   "output_bytes": 4095, "saved_bytes": 0, "parameter_bytes": 0},
  {"name": "fc", "forward_us": 1, "backward_input_us": 0.1, "backward_weight_us": 2,
   "output_bytes": 40, "saved_bytes": 100, "saved_for_weight_bytes": 60, "parameter_bytes": 4000}]}
)";

Profile read(std::string_view text) {
  Result<Profile> profile = profile_from_json(text, "p.json");
  REQUIRE_MESSAGE(profile.ok(), (profile.ok() ? "" : profile.error().to_string()));
  return profile.value();
}

}  // namespace

TEST_CASE(
    "profile: times become nanoseconds exactly, a whole backward is halved, odd ns to weight") {
  const Profile profile = read(kChain);
  CHECK_EQ(profile.name, "tiny");
  CHECK_EQ(profile.provenance, "synthetic");
  CHECK_EQ(profile.samples, 64);
  CHECK_EQ(profile.data_loading, 1500250);
  REQUIRE_EQ(profile.layers.size(), 3);
  CHECK(profile.layers[0] == LayerProfile{.name = "conv",
                                          .forward = 12500,
                                          .backward_input = 12500,
                                          .backward_weight = 12501,
                                          .output_bytes = 4096,
                                          .saved_bytes = 8192,
                                          .saved_for_weight_bytes = 8192,
                                          .parameter_bytes = 1728});
  CHECK_EQ(profile.layers[1].forward, 0);
  CHECK_EQ(profile.layers[2].backward_input, 100);
  CHECK_EQ(profile.layers[2].backward_weight, 2000);
  CHECK_EQ(profile.layers[2].saved_for_weight_bytes, 60);
  CHECK(profile.edges == std::vector<LayerEdge>{{0, 1}, {1, 2}});
}

TEST_CASE("profile: what is written reads back equal, and is the same bytes again") {
  for (const std::string& text :
       {std::string(kChain),
        edited(kChain,
               {{"4000}]}", "4000}], \"edges\": [[\"conv\", \"fc\"], [\"relu\", \"fc\"]]}"}}),
        edited(kChain, {{"4000}]}", "4000, \"update_us\": 3.25}]}"}}),
        edited(kChain, {{"\"conv\"", "\"c\\\"o\\nnv \xC3\xA9\""}})}) {
    const Profile profile = read(text);
    const std::string written = profile_to_json(profile);
    CHECK(read(written) == profile);
    CHECK_EQ(profile_to_json(read(written)), written);
  }
  CHECK(profile_to_json(read(kChain)).find("edges") == std::string::npos);
  CHECK_FALSE(read(kChain).layers[2].update.has_value());
  CHECK(profile_to_json(read(kChain)).find("update_us") == std::string::npos);
  CHECK(read(edited(kChain, {{"4000}]}", "4000, \"update_us\": 3.25}]}"}})).layers[2].update ==
        3250);
  CHECK(profile_to_json(read(kChain)).find("\"backward_us\": 25.001") != std::string::npos);
}

TEST_CASE("profile: samples are written in their order, and change nothing that is read back") {
  const Profile profile = read(kChain);
  std::vector<LayerSamples> samples(profile.layers.size());
  samples[0].forward = {12'600, 12'500, 12'400};
  samples[0].backward = {25'001};
  const std::string written = profile_to_json(profile, samples);
  CHECK(written.find("\"samples_us\": {\"forward\": [12.6, 12.5, 12.4], \"backward\": [25.001], "
                     "\"backward_input\": [], \"update\": []}") != std::string::npos);
  CHECK(read(written) == profile);
}

TEST_CASE("profile: layers that stand before their inputs are moved, the first ready one first") {
  // fc needs conv and relu; relu stands first in the file and needs conv.
  const Profile profile = read(edited(
      kChain,
      {{"\"name\": \"conv\"", "\"name\": \"X\""},
       {"\"name\": \"relu\"", "\"name\": \"conv\""},
       {"\"name\": \"X\"", "\"name\": \"relu\""},
       {"4000}]}",
        "4000}], \"edges\": [[\"relu\", \"fc\"], [\"conv\", \"relu\"], [\"conv\", \"fc\"]]}"}}));
  CHECK_EQ(profile.layers[0].name, "conv");
  CHECK_EQ(profile.layers[1].name, "relu");
  CHECK_EQ(profile.layers[2].name, "fc");
  CHECK(profile.edges == std::vector<LayerEdge>{{0, 1}, {0, 2}, {1, 2}});
}

TEST_CASE("profile: missing is not zero, wrong is told with its path, all at once") {
  tests::check_refusals(
      kChain, profile_from_json,
      {
          {"\"samples\": 64, ", "", "/samples", "is missing"},
          {"\"samples\": 64", "\"samples\": 0", "/samples", "from 1 to 4294967295, found 0"},
          {"\"forward_us\": 12.5, ", "", "/layers/0/forward_us", "is missing"},
          {"\"backward_us\": 25.001,", "", "/layers/0/backward_us", "is missing"},
          {"\"backward_us\": 25.001", "\"backwrd_us\": 25.001", "/layers/0/backwrd_us",
           "unknown key"},
          {"\"backward_weight_us\": 2,", "", "/layers/2/backward_weight_us", "is missing"},
          {"\"backward_weight_us\": 2", "\"backward_us\": 2", "/layers/2/backward_us",
           "given beside its parts"},
          {"\"forward_us\": 12.5", "\"forward_us\": -1", "/layers/0/forward_us", "found -1"},
          {"\"forward_us\": 12.5", "\"forward_us\": null", "/layers/0/forward_us", "found null"},
          {"\"forward_us\": 12.5", "\"forward_us\": \"5\"", "/layers/0/forward_us",
           "found the string \"5\""},
          {"\"forward_us\": 12.5", "\"forward_us\": \"NaN\"", "/layers/0/forward_us",
           "found the string \"NaN\""},
          {"\"forward_us\": 12.5", "\"forward_us\": true", "/layers/0/forward_us", "found true"},
          {"\"forward_us\": 12.5", "\"forward_us\": NaN", "line 4, column 34", "NaN"},
          {"\"forward_us\": 12.5", "\"forward_us\": Infinity", "line 4", "Infinity"},
          {"\"forward_us\": 12.5", "\"forward_us\": 1e999", "line 4", "1e999"},
          {"\"forward_us\": 12.5", "\"forward_us\": 1e18", "/layers/0/forward_us", "found 1e18"},
          {"\"forward_us\": 12.5", "\"forward_us\": 1, \"forward_us\": 12.5",
           "/layers/0/forward_us", "duplicate"},
          {"\"output_bytes\": 4096", "\"output_bytes\": 4096.5", "/layers/0/output_bytes",
           "found 4096.5"},
          {"\"saved_bytes\": 100", "\"saved_bytes\": 50", "/layers/2/saved_for_weight_bytes",
           "at most saved_bytes, 50"},
          {"\"relu\"", "\"conv\"", "/layers/1/name", "layer 0 is called \"conv\" too"},
          {"4000}]}", "4000, \"samples_us\": {\"forward\": [1, -2]}}]}",
           "/layers/2/samples_us/forward/1", "found -2"},
          {"4000}]}", "4000, \"samples_us\": {\"foward\": [1]}}]}", "/layers/2/samples_us/foward",
           "unknown key"},
          {"4000}]}", "4000}], \"edges\": [[\"conv\", \"cnov\"]]}", "/edges/0/1",
           "no layer is called \"cnov\""},
          {"4000}]}", "4000}], \"edges\": [[\"conv\", \"conv\"]]}", "/edges/0", "to itself"},
          {"4000}]}", "4000}], \"edges\": [[\"conv\", \"fc\"], [\"conv\", \"fc\"]]}", "/edges/1",
           "duplicate of /edges/0"},
          {"4000}]}", "4000}], \"ties\": [{\"layers\": [\"conv\", \"cf\"], \"bytes\": 8}]}",
           "/ties/0/layers/1", "no layer is called \"cf\""},
          {"4000}]}", "4000}], \"ties\": [{\"layers\": [\"conv\", \"fc\"], \"bytes\": 1729}]}",
           "/ties/0/layers/0", "has 1728 bytes of parameters"},
          {"4000}]}", "4000}], \"ties\": [{\"layers\": [\"fc\", \"fc\"], \"bytes\": 8}]}",
           "/ties/0", "to itself"},
          {"4000}]}", "4000}], \"ties\": [{\"layers\": [\"fc\"], \"bytes\": 8}]}", "/ties/0/layers",
           "expected two layers, found 1"},
          {"4000}]}",
           "4000}], \"ties\": [{\"layers\": [\"conv\", \"fc\"], \"bytes\": 8}, "
           "{\"layers\": [\"fc\", \"conv\"], \"bytes\": 8}]}",
           "/ties/1", "tied already"},
          {"4000}]}",
           "4000}], \"edges\": [[\"conv\", \"fc\"], [\"fc\", \"relu\"], [\"relu\", \"conv\"]]}",
           "edges", "in a ring: \"conv\" needs \"relu\" needs \"fc\" needs \"conv\""},
          {"\"parameter_bytes\": 1728", "\"parameter_bytes\": 9223372036854775807", "conv",
           "too much to count"},
      });
  const Result<Profile> many = profile_from_json(edited(kChain, {{"\"samples\": 64, ", ""},
                                                                 {"\"forward_us\": 12.5, ", ""},
                                                                 {"\"output_bytes\": 40,", ""}}),
                                                 "p.json");
  REQUIRE_FALSE(many.ok());
  CHECK_EQ(many.error().diagnostics.size(), 3);
}

TEST_CASE("profile: tied layers are read, told by place, and written again") {
  const std::string text = edited(
      kChain, {{"4000}]}", "4000}], \"ties\": [{\"layers\": [\"fc\", \"conv\"], \"bytes\": 8}]}"}});
  const Profile profile = read(text);
  CHECK(profile.ties == std::vector<LayerTie>{{0, 2, 8}});
  CHECK(read(profile_to_json(profile)) == profile);
}

TEST_CASE("profile: no layers, no object and another format are refused") {
  CHECK_FALSE(profile_from_json("[]", "p.json").ok());
  CHECK_FALSE(profile_from_json("{}", "p.json").ok());
  CHECK_FALSE(
      profile_from_json(R"({"format": "xpipe.profile", "version": 1, "samples": 1, "layers": []})",
                        "p.json")
          .ok());
}

}  // namespace xpipe::ir
