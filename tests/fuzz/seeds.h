// Small legal files of each kind with every key and form that its reader knows: what the fuzzer
// starts from. A new key belongs here on the day it is born.
#pragma once

#include <string>
#include <vector>

namespace xpipe::fuzz {

[[nodiscard]] std::vector<std::string> profile_seeds();
[[nodiscard]] std::vector<std::string> graph_seeds();
[[nodiscard]] std::vector<std::string> cluster_seeds();
[[nodiscard]] std::vector<std::string> schedule_text_seeds();
[[nodiscard]] std::vector<std::string> schedule_json_seeds();

/// Of our own traces, a plan and a run.
[[nodiscard]] std::vector<std::string> timeline_seeds();

/// Of other programs' traces, too: every phase, counters, flows, a bare array.
[[nodiscard]] std::vector<std::string> trace_seeds();

/// MNIST's IDX files of three dimensions, plain and gzipped.
[[nodiscard]] std::vector<std::string> idx_seeds();

[[nodiscard]] std::vector<std::string> cifar_seeds();

}  // namespace xpipe::fuzz
