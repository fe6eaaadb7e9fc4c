#include "tests/scheduler/shared_profiles.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>

#include "ir/files.h"
#include "ir/pipedream_graph.h"

namespace xpipe::tests {

std::optional<ir::Profile> shared_profile(const std::string& name) {
  const char* shared = std::getenv("XPIPE_SHARED");  // NOLINT(concurrency-mt-unsafe)
  const std::filesystem::path folder = shared != nullptr ? shared : XPIPE_SOURCE_DIR "/../shared";
  const std::string path = (folder / "real/pipedream" / (name + ".graph.txt")).string();
  if (!std::filesystem::exists(path)) {
    std::printf("[SKIPPED] there is no %s\n", path.c_str());
    return std::nullopt;
  }
  const auto text = ir::read_file(path);
  REQUIRE(text.ok());
  const auto graph = ir::pipedream_graph_from_text(text.value(), name, kSharedSamples);
  REQUIRE_MESSAGE(graph.ok(), (graph.ok() ? "" : graph.error().to_string()));
  return graph.value().profile;
}

}  // namespace xpipe::tests
