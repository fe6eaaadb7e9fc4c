// One table for every reader of files: how to break a good file, and what must be told of it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "ir/status.h"

namespace xpipe::ir::tests {

struct Refusal {
  std::string from;  ///< where it first stands in the good file
  std::string to;
  std::string_view where;  ///< how the place begins, behind the file's name
  std::string_view says;   ///< stands in the message of that place
};

/// Reads `good` with each edit by `read(text, file)`, and wants it refused as BadInput with the
/// place and the message, among whatever else is wrong with it then.
template <typename Read>
void check_refusals(std::string_view good, Read&& read, const std::vector<Refusal>& refusals) {
  const std::string file = "some/file.in";
  REQUIRE(read(good, file).ok());
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.from);
    CAPTURE(refusal.to);
    std::string text(good);
    const std::size_t place = text.find(refusal.from);
    REQUIRE_MESSAGE(place != std::string::npos, "not in the file");
    text.replace(place, refusal.from.size(), refusal.to);
    const auto result = read(text, file);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ErrorKind::BadInput);
    const std::string where = file + ": " + std::string(refusal.where);
    const auto& found = result.error().diagnostics;
    const bool told = std::any_of(found.begin(), found.end(), [&](const Diagnostic& diagnostic) {
      return diagnostic.where.starts_with(where) &&
             diagnostic.message.find(refusal.says) != std::string::npos;
    });
    CHECK_MESSAGE(told, "want ", where, " and '", refusal.says,
                  "', found: ", result.error().to_string());
  }
}

}  // namespace xpipe::ir::tests
