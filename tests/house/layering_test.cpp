// Who may include whom: the table below is the architecture, and this test walks the tree and holds
// every #include against it. To add a folder or an arrow, change the table and say why.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/house/tree.h"

namespace xpipe::house {
namespace {

using Folders = std::vector<std::string>;

const Folders kTopFolders{"ir",     "scheduler", "policies", "simulator", "executor",
                          "traces", "app",       "tests",    "bench",     "examples"};

const std::set<std::string> kSourceSuffixes{".h", ".cpp", ".cu", ".cuh"};

// Besides itself, a folder may include:
const std::map<std::string, Folders> kMayInclude{
    {"ir", {}},
    {"scheduler", {"ir"}},
    {"policies", {"ir", "scheduler"}},
    {"simulator", {"ir", "scheduler"}},
    {"traces", {"ir"}},
    {"executor", {"ir", "scheduler"}},
    // One vendor a sub-folder; the core includes none of them.
    {"executor/cpu", {"ir", "scheduler", "executor"}},
    {"executor/processes", {"ir", "scheduler", "executor"}},
    {"executor/c10d", {"ir", "scheduler", "executor", "executor/processes"}},
    {"executor/cuda", {"ir", "scheduler", "executor"}},
    {"executor/nccl", {"ir", "scheduler", "executor", "executor/cuda"}},
    {"executor/torch", {"ir", "scheduler", "executor", "executor/processes"}},
};

// These may include everything above; nothing includes them.
const std::set<std::string> kOnTop{"app", "tests", "bench", "examples"};

// Third-party headers and the only folders that may see them.
const std::vector<std::pair<std::string, Folders>> kVendors{
    {"torch/", {"executor/torch", "executor/c10d", "tests/executor_torch", "bench"}},
    {"ATen/", {"executor/torch", "executor/c10d", "tests/executor_torch", "bench"}},
    {"c10/", {"executor/torch", "executor/c10d", "tests/executor_torch", "bench"}},
    {"cuda",
     {"executor/cuda", "executor/nccl", "tests/executor_cuda", "tests/executor_nccl", "bench"}},
    {"nccl", {"executor/nccl"}},
    {"gloo/", {"executor/c10d"}},
    {"CLI/", {"app"}},
    {"tbb/", {"app"}},
    {"fmt/", {"app", "tests/app"}},  // never where torch's own fmt is in sight
    {"doctest/", {"tests"}},
    {"rapidcheck", {"tests"}},
    {"benchmark/", {"bench"}},
};

bool is_or_is_below(std::string_view folder, std::string_view above) {
  return folder == above ||
         (folder.starts_with(above) && folder.substr(above.size()).starts_with('/'));
}

bool is_on_top(const std::string& folder) {
  return kOnTop.contains(folder.substr(0, folder.find('/')));
}

// What the include of `target` (as written between the quotes) in `file` breaks, if anything.
std::optional<std::string> broken_by_own(const std::string& file, const std::string& target) {
  const std::string from = folder_of(file);
  const std::string to = folder_of(target);
  const std::string top = target.substr(0, target.find('/'));
  if (std::find(kTopFolders.begin(), kTopFolders.end(), top) == kTopFolders.end()) {
    return "includes are written from the root of the tree";
  }
  if (is_on_top(to)) {
    const std::string from_top = from.substr(0, from.find('/'));
    const bool allowed = from_top == top || from_top == "tests";
    return allowed ? std::nullopt : std::optional("nothing includes " + top);
  }
  if (is_on_top(from) || from == to) {
    return std::nullopt;
  }
  const auto rule = kMayInclude.find(from);
  if (rule == kMayInclude.end()) {
    return "folder " + from + " is not in the table";
  }
  const Folders& allowed = rule->second;
  if (std::find(allowed.begin(), allowed.end(), to) == allowed.end()) {
    return from + " may not include " + to;
  }
  return std::nullopt;
}

std::optional<std::string> broken_by_vendor(const std::string& file, const std::string& header) {
  const std::string from = folder_of(file);
  for (const auto& [prefix, folders] : kVendors) {
    const bool fenced_in = std::any_of(folders.begin(), folders.end(), [&](const auto& folder) {
      return is_or_is_below(from, folder);
    });
    if (header.starts_with(prefix) && !fenced_in) {
      return from + " may not include " + prefix;
    }
  }
  // The shared nouns build anywhere in seconds: their headers need the standard library only.
  if (from == "ir" && file.ends_with(".h") && header.find_first_of("/.") != std::string::npos) {
    return "a header of ir includes the standard library only";
  }
  return std::nullopt;
}

struct Include {
  std::string file;
  std::string target;
  bool own = false;  ///< written with quotes
};

std::optional<Include> parse_include(const std::string& file, std::string_view line) {
  const auto trimmed = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  trimmed();
  if (!line.starts_with('#')) {
    return std::nullopt;
  }
  line.remove_prefix(1);
  trimmed();
  if (!line.starts_with("include")) {
    return std::nullopt;
  }
  line.remove_prefix(std::string_view("include").size());
  trimmed();
  const char close = line.starts_with('<') ? '>' : '"';
  const auto end = line.find(close, 1);
  if (line.empty() || end == std::string_view::npos) {
    return std::nullopt;
  }
  return Include{file, std::string(line.substr(1, end - 1)), close == '"'};
}

std::vector<Include> includes_of(const std::string& file) {
  std::vector<Include> includes;
  for (const std::string& line : lines_of(file)) {
    if (auto include = parse_include(file, line)) {
      includes.push_back(*include);
    }
  }
  return includes;
}

// The policies are the headers that register_all.cpp names; what several of them share is not one.
std::set<std::string> policy_headers() {
  std::set<std::string> headers;
  for (const Include& include : includes_of("policies/register_all.cpp")) {
    if (include.target.starts_with("policies/") && stem_of(include.target) != "register_all") {
      headers.insert(include.target);
    }
  }
  return headers;
}

TEST_CASE("layering: every include follows the table of who may include whom") {
  const auto files = files_below(kTopFolders, kSourceSuffixes);
  REQUIRE(files.size() > 20);
  for (const std::string& file : files) {
    for (const Include& include : includes_of(file)) {
      const auto broken = include.own ? broken_by_own(file, include.target)
                                      : broken_by_vendor(file, include.target);
      CHECK_MESSAGE(!broken, file, " includes ", include.target, ": ", broken.value_or(""));
    }
  }
}

TEST_CASE("layering: no policy includes another") {
  const std::set<std::string> policies = policy_headers();
  REQUIRE(policies.size() >= 4);
  for (const std::string& file : files_below({"policies"}, kSourceSuffixes)) {
    for (const Include& include : includes_of(file)) {
      const bool another = policies.contains(include.target) &&
                           stem_of(include.target) != stem_of(file) &&
                           stem_of(file) != "register_all";
      CHECK_MESSAGE(!another, file, " includes the policy ", include.target);
    }
  }
}

// Headers are compiled alone with torch/torch.h precompiled, which would hide this.
TEST_CASE("layering: a header that speaks of torch includes it") {
  std::size_t speaking = 0;
  for (const std::string& file : files_below({"executor"}, {".h"})) {
    const auto lines = lines_of(file);
    const bool speaks = std::ranges::any_of(lines, [](const std::string& line) {
      return !line.starts_with("//") && (line.find("torch::") != std::string::npos ||
                                         line.find("at::Tensor") != std::string::npos);
    });
    if (speaks) {
      ++speaking;
      CHECK_MESSAGE(std::ranges::any_of(lines,
                                        [](const std::string& line) {
                                          return line.starts_with("#include <torch/") ||
                                                 line.starts_with("#include <ATen/");
                                        }),
                    file, " speaks of torch and includes none of it");
    }
  }
  CHECK(speaking > 0);
}

TEST_CASE("layering: the check names a forbidden arrow and lets an allowed one pass") {
  CHECK(broken_by_own("policies/gpipe.cpp", "simulator/simulate.h") ==
        "policies may not include simulator");
  CHECK(broken_by_own("ir/task.h", "scheduler/compile.h") == "ir may not include scheduler");
  CHECK(broken_by_own("executor/engine.cpp", "executor/cpu/cpu_pool.h") ==
        "executor may not include executor/cpu");
  CHECK(broken_by_own("executor/torch/model.cpp", "executor/cpu/cpu_pool.h") ==
        "executor/torch may not include executor/cpu");
  CHECK(broken_by_own("simulator/simulate.cpp", "traces/trace_json.h") ==
        "simulator may not include traces");
  CHECK(broken_by_own("traces/trace_json.cpp", "app/commands.h") == "nothing includes app");
  CHECK(broken_by_own("app/run.cpp", "tests/house/tree.h") == "nothing includes tests");
  CHECK(broken_by_own("ir/task.cpp", "task.h") == "includes are written from the root of the tree");
  CHECK(broken_by_own("newcomer/x.cpp", "ir/task.h") == "folder newcomer is not in the table");

  CHECK(broken_by_own("executor/nccl/link.cpp", "executor/cuda/stream.h") == std::nullopt);
  CHECK(broken_by_own("executor/torch/model.cpp", "executor/handlers.h") == std::nullopt);
  CHECK(broken_by_own("tests/app/run_test.cpp", "app/commands.h") == std::nullopt);

  CHECK(broken_by_vendor("executor/engine.h", "torch/torch.h") ==
        "executor may not include torch/");
  CHECK(broken_by_vendor("executor/torch/model.cpp", "fmt/format.h") ==
        "executor/torch may not include fmt/");
  CHECK(broken_by_vendor("ir/task.h", "nlohmann/json.hpp") ==
        "a header of ir includes the standard library only");
  CHECK(broken_by_vendor("ir/task_json.cpp", "nlohmann/json.hpp") == std::nullopt);
  CHECK(broken_by_vendor("executor/torch/model.h", "torch/torch.h") == std::nullopt);

  const auto spaced = parse_include("ir/task.h", "  #  include \"ir/ids.h\"  // ids");
  REQUIRE(spaced);
  CHECK(spaced->target == "ir/ids.h");
  CHECK(spaced->own);
  CHECK_FALSE(parse_include("ir/task.h", "// #include \"ir/ids.h\""));
}

}  // namespace
}  // namespace xpipe::house
