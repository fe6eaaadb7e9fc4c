#include "tests/fuzz/seeds.h"

#include <string_view>

#include <doctest/doctest.h>

#include "ir/schedule_json.h"
#include "ir/text.h"
#include "tests/ir/schedules.h"
#include "tests/traces/trace_helpers.h"

namespace xpipe::fuzz {

std::vector<std::string> profile_seeds() {
  return {R"({"format": "xpipe.profile", "version": 1,
 "name": "tiny", "provenance": "synthetic", "samples": 64, "data_loading_us": 1500.25,
 "layers": [
  {"name": "conv", "forward_us": 12.5, "backward_us": 25.001,
   "output_bytes": 4096, "saved_bytes": 8192, "parameter_bytes": 1728},
  {"name": "re/l~u \"\u00e9", "forward_us": 0, "backward_us": 1e1,
   "output_bytes": 4095, "saved_bytes": 0, "parameter_bytes": 0},
  {"name": "fc", "forward_us": 1, "backward_input_us": 0.1, "backward_weight_us": 2,
   "output_bytes": 40, "saved_bytes": 100, "saved_for_weight_bytes": 60, "parameter_bytes": 4000, "update_us": 3.5,
   "samples_us": {"forward": [1, 0.5, 1.25e0], "backward": [2.1], "backward_input": [], "update": [3.5]}}],
 "edges": [["conv", "re/l~u \"\u00e9"], ["conv", "fc"], ["re/l~u \"\u00e9", "fc"]],
 "ties": [{"layers": ["conv", "fc"], "bytes": 16}]}
)",
          R"({"format": "xpipe.profile", "version": 1, "samples": 1, "layers": [
  {"name": "a", "forward_us": 1, "backward_us": 2, "output_bytes": 1, "saved_bytes": 1, "parameter_bytes": 1}]}
)"};
}

std::vector<std::string> graph_seeds() {
  return {
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
      "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode3 -- node5",
      "node1 -- Input -- forward_compute_time=0.000, backward_compute_time=0.000, "
      "activation_size=4.0, parameter_size=0.000 -- stage_id=0\n"
      "node2 -- Linear -- forward_compute_time=1.000, backward_compute_time=2.000, "
      "activation_size=4.0, parameter_size=4.000 -- stage_id=1\n"
      "\tnode1 -- node2\n"};
}

std::vector<std::string> cluster_seeds() {
  return {R"({"format": "xpipe.cluster", "version": 1, "name": "three",
 "devices": [{"name": "a", "speed": 0.5, "memory_bytes": 1024, "memory_bandwidth_bytes_per_s": 9e11},
             {"name": "b"}, {}],
 "links": [{"from": 0, "to": "b", "bandwidth_bytes_per_s": 1.25e10, "latency_us": 5.5, "duplex": "half"},
           {"from": 1, "to": 2, "symmetric": false}],
 "default_link": {"latency_us": 10, "bandwidth_bytes_per_s": 1000000000, "duplex": "full"}}
)",
          R"({"format": "xpipe.cluster", "version": 1,
 "provenance": "made up", "sharing": "max-min", "all_reduce": "tree",
 "devices": [{"overlap_slowdown": 1.25, "launch_overhead_us": 4.5}, {}, {"name": "far"}],
 "shared_links": [{"name": "bus", "duplex": "half"},
                  {"name": "nic0", "bandwidth_bytes_per_s": 1.25e9, "latency_us": 20},
                  {"name": "nic1", "bandwidth_bytes_per_s": 3e9}],
 "links": [{"from": [0, 1], "to": "far", "via": ["bus", "nic0", "nic1"], "latency_us": 1}],
 "default_link": {"bandwidth_bytes_per_s": 1e10, "via": ["bus"]}}
)"};
}

std::vector<std::string> schedule_text_seeds() {
  std::vector<std::string> seeds = {
      std::string(ir::tests::kTwoStages), std::string(ir::tests::kOneStage),
      std::string(ir::tests::kTwoLanes), std::string(ir::tests::kReplicas),
      std::string(ir::tests::kExchanges)};
  for (const char* policy : {"xpipe", "pipedream"}) {
    seeds.push_back(ir::schedule_to_text(tests::schedule_for({policy, 2, 2, 2, {}})));
  }
  return seeds;
}

std::vector<std::string> schedule_json_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& text : schedule_text_seeds()) {
    seeds.push_back(ir::schedule_to_json(ir::tests::parsed(text)));
  }
  return seeds;
}

std::vector<std::string> timeline_seeds() {
  const ir::Schedule one = tests::schedule_for({"gpipe", 1, 1, 1, {}});
  const ir::Schedule two = tests::schedule_for({"gpipe", 2, 1, 1, {}});
  const ir::Schedule replicated = ir::tests::parsed(ir::tests::kReplicas);
  return {tests::trace_of(one, tests::made_up_run(one, 1),
                          {.title = "a \"run\"",
                           .base_time_ns = 1,
                           .facts = {{"seed", "7"}},
                           .layers = {{"conv", "fc"}}}),
          tests::trace_of(two, tests::plan_of(two, 1500)),
          tests::trace_of(replicated, tests::made_up_run(replicated, 2))};
}

std::vector<std::string> trace_seeds() {
  std::vector<std::string> seeds = timeline_seeds();
  seeds.emplace_back(R"({"displayTimeUnit": "ms", "distributedInfo": {"rank": 0}, "traceEvents": [
 {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "device 0"}},
 {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "compute"}},
 {"ph": "X", "pid": 1, "tid": 1, "ts": 0.250, "dur": 1, "name": "a", "cat": "kernel", "args": {"x": [null, true, "\u00e9"]}},
 {"ph": "s", "pid": 1, "tid": 1, "ts": 0.25, "id": 1, "cat": "flow", "name": "f"},
 {"ph": "B", "pid": 1, "tid": 1, "ts": 2, "name": "b"},
 {"ph": "E", "pid": 1, "tid": 1, "ts": 3.125},
 {"ph": "X", "pid": 1, "tid": 1, "ts": 4, "dur": 0, "name": "c"},
 {"ph": "X", "pid": 1, "tid": 1, "ts": 4, "dur": 5, "name": "d"},
 {"ph": "f", "pid": 1, "tid": 1, "ts": 4.5, "id": 1, "cat": "flow", "name": "f", "bp": "e"},
 {"ph": "C", "pid": 1, "ts": 0, "name": "memory", "args": {"bytes": 12.5}},
 {"ph": "i", "pid": 1, "tid": 1, "ts": 1, "name": "mark"}]}
)");
  seeds.emplace_back(R"([{"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "name": "a"}])");
  return seeds;
}

std::vector<std::string> idx_seeds() {
  using namespace std::string_literals;
  // Two images of 2 x 3; the same as `gzip -n` packs it.
  return {
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"s + "ABCDEFGHIJKL",
      "\x1f\x8b\x08\0\0\0\0\0\x02\x03\x63\x60\xe0\x60\x66\x60\x60\x60\x82\x62\x66\x47\x27\x67\x17"
      "\x57\x37\x77\x0f\x4f\x2f\x6f\x1f\0\x29\x85\x19\x75\x1c\0\0\0"s};
}

std::vector<std::string> cifar_seeds() {
  std::string records;
  for (char label = 0; label < 2; ++label) {
    records += label;
    records += std::string(std::size_t{3} * 32 * 32, 'p');
  }
  return {records};
}

}  // namespace xpipe::fuzz
