#include "ir/pipedream_graph.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "ir/files.h"
#include "tests/ir/schedules.h"

namespace xpipe::ir {

namespace {

using tests::edited;

/// Node order as a hash map dumps it; an input, a list of activations, an unused __getitem__.
constexpr std::string_view kSmall =
    "node3 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348, "
    "activation_size=[6291456.0; 131072.0; 131072.0], parameter_size=50364416.000\n"
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=0.0015, "
    "backward_compute_time=0.000, activation_size=8.000, parameter_size=7168.000\n"
    "node1 -- Input0 -- forward_compute_time=17.972, backward_compute_time=0.000, "
    "activation_size=77070336.000, parameter_size=0.000\n"
    "node4 -- __getitem__(0) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=6291456.0, parameter_size=0.000\n"
    "node5 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=131072.0, parameter_size=0.000\n"
    "node6 -- Loss -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=4.0, parameter_size=0.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n"
    "\tnode3 -- node4\n"
    "\tnode3 -- node5\n"
    "\tnode4 -- node6";

PipedreamGraph read(std::string_view text) {
  Result<PipedreamGraph> graph = pipedream_graph_from_text(text, "d/small.graph.txt", 64);
  REQUIRE_MESSAGE(graph.ok(), (graph.ok() ? "" : graph.error().to_string()));
  return graph.value();
}

std::string refusal(std::string_view text) {
  const Result<PipedreamGraph> graph = pipedream_graph_from_text(text, "g.txt", 64);
  return graph.ok() ? "" : graph.error().to_string();
}

std::filesystem::path real_files() {
  const char* shared = std::getenv("XPIPE_SHARED");
  const std::filesystem::path root =
      shared != nullptr ? shared : std::string(XPIPE_SOURCE_DIR) + "/../shared";
  return root / "real" / "pipedream";
}

/// One NUM field of a node's line, summed over a list: read apart from the reader, as awk would.
double field(const std::string& line, const std::string& key) {
  std::size_t at = line.find(key + "=") + key.size() + 1;
  double sum = 0.0;
  if (line[at] != '[') {
    return std::stod(line.substr(at));
  }
  std::istringstream items(line.substr(at + 1, line.find(']', at) - at - 1));
  for (std::string item; std::getline(items, item, ';');) {
    sum += std::stod(item);
  }
  return sum;
}

}  // namespace

TEST_CASE("graph.txt: nodes become layers in topological order, milliseconds nanoseconds") {
  const PipedreamGraph graph = read(kSmall);
  const Profile& profile = graph.profile;
  REQUIRE_EQ(profile.layers.size(), 5);
  CHECK_EQ(profile.name, "small");
  CHECK_EQ(profile.samples, 64);
  CHECK_EQ(profile.layers[0].name, "node1 Input0");
  CHECK_EQ(profile.layers[1].name, "node2 Conv2d(3, 64, kernel_size=(3, 3))");
  CHECK_EQ(profile.layers[2].name, "node3 LSTM(2048, 1024)");
  CHECK_EQ(profile.layers[2].forward, 3190000);
  CHECK_EQ(profile.layers[2].backward_input, 2674000);
  CHECK_EQ(profile.layers[2].backward_weight, 2674000);
  CHECK_EQ(profile.layers[2].output_bytes, 6291456 + 131072 + 131072);
  CHECK_EQ(profile.layers[2].saved_bytes, profile.layers[2].output_bytes);
  CHECK_EQ(profile.layers[2].parameter_bytes, 50364416);
  CHECK_EQ(profile.layers[1].forward, 1500);
  CHECK(profile.edges == std::vector<LayerEdge>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
}

TEST_CASE(
    "graph.txt: an Input's time is data loading; an unused __getitem__ is left out and said") {
  const PipedreamGraph graph = read(kSmall);
  CHECK_EQ(graph.profile.data_loading, 17972000);
  CHECK_EQ(graph.profile.layers[0].forward, 0);
  CHECK_EQ(graph.profile.layers[0].output_bytes, 77070336);
  CHECK_EQ(graph.profile.layers[3].name, "node4 __getitem__(0)");  // node6 uses it
  bool said = false;
  for (const std::string& note : graph.notes) {
    said |= note.find("1 __getitem__ nodes that nothing uses") != std::string::npos;
  }
  CHECK(said);
}

TEST_CASE("graph.txt: a final newline and CR LF change nothing; a stage_id is allowed") {
  std::string crlf;
  for (const char c : std::string(kSmall) + "\n") {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
  }
  CHECK(read(crlf).profile == read(kSmall).profile);
  CHECK(read(edited(kSmall, {{"activation_size=4.0, parameter_size=0.000",
                              "activation_size=4.0, parameter_size=0.000 -- stage_id=1"}}))
            .profile == read(kSmall).profile);
}

TEST_CASE("graph.txt: what does not belong is refused with its line") {
  struct Case {
    std::string from;
    std::string to;
    std::string_view says;
  };

  for (const Case& c : std::vector<Case>{
           {"activation_size=4.0, parameter_size=0.000",
            "activation_size=4.0, parameter_size=0.000 -- stage_id=1 -- x",
            "g.txt: line 6: expected 3 or 4 parts"},
           {"activation_size=4.0, parameter_size=0.000",
            "activation_size=4.0, parameter_size=0.000 -- stage=1",
            "line 6: expected \"stage_id=NUMBER\""},
           {"activation_size=4.0, parameter_size=0.000",
            "parameter_size=0.000, activation_size=4.0", "line 6: expected forward_compute_time"},
           {"activation_size=4.0,", "activation_size=4.0, x=1,",
            "line 6: expected forward_compute_time"},
           {"activation_size=4.0", "activation_size=-4.0",
            "line 6: activation_size: expected a decimal number of at least 0, found \"-4.0\""},
           {"activation_size=4.0", "activation_size=4.5",
            "line 6: activation_size: expected whole bytes"},
           {"activation_size=4.0", "activation_size=nan", "found \"nan\""},
           {"activation_size=4.0", "activation_size=", "found \"\""},
           {"131072.0; 131072.0]", "131072.0; 131072.0", "line 1: activation_size: expected \"]\""},
           {"forward_compute_time=3.190", "forward_compute_time=99999999999999",
            "line 1: forward_compute_time"},
           {"node6 -- Loss", "node5 -- Loss", "line 6: node \"node5\" is there twice"},
           {"\tnode4 -- node6", "\tnode4 -- node7", "line 11: no node is called \"node7\""},
           {"\tnode4 -- node6", "\tnode4 -- node6\n\tnode4 -- node6",
            "line 12: duplicate of the edge on line 11"},
           {"\tnode4 -- node6", "\tnode4 -- node4", "line 11: goes from a node to itself"},
           {"\tnode4 -- node6", "\tnode4", "line 11: expected a tab and \"ID -- ID\", found 1"},
           {"\tnode4 -- node6", "node4 -- node6", "line 11: a node after the edges"},
           {"\tnode4 -- node6", "\n\tnode4 -- node6", "line 11: a node after the edges"},
           {"node6 -- Loss", "node6 -- L\xFFss", "line 6: invalid UTF-8"},
           {"\tnode3 -- node5", "\tnode6 -- node2", "layers need each other in a ring"},
       }) {
    CAPTURE(c.to);
    const std::string told = refusal(edited(kSmall, {{c.from, c.to}}));
    CAPTURE(told);
    CHECK(told.find(c.says) != std::string::npos);
  }
  CHECK(refusal("").find("line 1: no nodes") != std::string::npos);
  const std::string many =
      refusal(edited(kSmall, {{"activation_size=4.0", "activation_size=x"},
                              {"\tnode2 -- node3", "\tnode2 -- node33"},
                              {"parameter_size=7168.000", "parameter_size=?"}}));
  CHECK(many.find("line 2:") != std::string::npos);
  CHECK(many.find("line 6:") != std::string::npos);
  CHECK(many.find("line 8:") != std::string::npos);
}

TEST_CASE("graph.txt: the public profiles read, with the sums of their files") {
  // Nodes, as `grep -c ' -- .* -- '` counts them, and those __getitem__ that nothing uses.
  const std::map<std::string, std::size_t> nodes = {
      {"alexnet", 23},    {"gnmt", 48},      {"gnmt_large", 96},    {"inception_v3", 326},
      {"resnet101", 347}, {"resnet50", 177}, {"squeezenet1_0", 68}, {"vgg16", 41}};
  if (!std::filesystem::is_directory(real_files())) {
    std::cout << "[SKIPPED] PipeDream's profiles are not at XPIPE_SHARED/real/pipedream\n";
    return;
  }
  for (const auto& [name, count] : nodes) {
    CAPTURE(name);
    const Result<std::string> text = read_file((real_files() / (name + ".graph.txt")).string());
    REQUIRE(text.ok());
    const Result<PipedreamGraph> graph =
        pipedream_graph_from_text(text.value(), name + ".graph.txt", 64);
    REQUIRE_MESSAGE(graph.ok(), (graph.ok() ? "" : graph.error().to_string()));
    const Profile& profile = graph.value().profile;

    std::map<std::string, bool> used;
    std::vector<std::string> node_lines;
    std::istringstream lines(text.value());
    std::size_t edges_in_file = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '\t') {
        used[line.substr(1, line.find(" -- ") - 1)] = true;
        ++edges_in_file;
      } else {
        node_lines.push_back(line);
      }
    }
    double forward = 0.0;
    double backward = 0.0;
    double loading = 0.0;
    double output = 0.0;
    double parameters = 0.0;
    std::size_t unused_items = 0;
    for (const std::string& line : node_lines) {
      if (line.find(" -- __getitem__") != std::string::npos &&
          !used[line.substr(0, line.find(" -- "))]) {
        ++unused_items;
        continue;
      }
      const bool input = line.find(" -- Input") != std::string::npos;
      (input ? loading : forward) += field(line, "forward_compute_time");
      backward += field(line, "backward_compute_time");
      output += field(line, "activation_size");
      parameters += field(line, "parameter_size");
    }
    CHECK_EQ(node_lines.size(), count);
    CHECK_EQ(profile.layers.size(), count - unused_items);
    CHECK_EQ(profile.edges.size(), edges_in_file - unused_items);
    LayerProfile sum;
    for (const LayerProfile& layer : profile.layers) {
      sum.forward += layer.forward;
      sum.backward_input += layer.backward_input;
      sum.backward_weight += layer.backward_weight;
      sum.output_bytes += layer.output_bytes;
      sum.parameter_bytes += layer.parameter_bytes;
    }
    CHECK_EQ(sum.forward, std::llround(forward * 1e6));
    CHECK_EQ(sum.backward_input + sum.backward_weight, std::llround(backward * 1e6));
    CHECK_EQ(profile.data_loading, std::llround(loading * 1e6));
    CHECK_EQ(sum.output_bytes, std::llround(output));
    CHECK_EQ(sum.parameter_bytes, std::llround(parameters));
    for (const LayerEdge& edge : profile.edges) {
      CHECK(edge.from < edge.to);
    }
  }
}

TEST_CASE("graph.txt: VGG-16 has its published parameters") {
  const Result<std::string> text = read_file((real_files() / "vgg16.graph.txt").string());
  if (!text.ok()) {
    std::cout << "[SKIPPED] vgg16.graph.txt is not at XPIPE_SHARED/real/pipedream\n";
    return;
  }
  Bytes parameters = 0;
  for (const LayerProfile& layer : read(text.value()).profile.layers) {
    parameters += layer.parameter_bytes;
  }
  CHECK_EQ(parameters, 4 * Bytes{138357544});  // Simonyan and Zisserman, configuration D
}

}  // namespace xpipe::ir
