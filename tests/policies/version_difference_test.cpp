// XPipe's version difference against the whole table of methods.md 1.3, against the same table as a
// file where the reference is there, and against the identities derived there.
#include "policies/version_difference.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::policies {
namespace {

/// One column of the table.
struct Column {
  VersionDifference mode;
  Rounding rounding;
  bool forward;
};

constexpr Column kColumns[] = {
    {VersionDifference::Paper, Rounding::HalfEven, true},
    {VersionDifference::Paper, Rounding::HalfUp, true},
    {VersionDifference::Paper, Rounding::Floor, true},
    {VersionDifference::Horizon, Rounding::Floor, true},
    {VersionDifference::Local, Rounding::Floor, true},
    {VersionDifference::Paper, Rounding::HalfEven, false},
    {VersionDifference::Paper, Rounding::HalfUp, false},
    {VersionDifference::Paper, Rounding::Floor, false},
    {VersionDifference::Horizon, Rounding::Floor, false},
};

/// The distances of stages 0 ... D-1, with `between` between them.
std::string vector_of(const Column& column, std::uint32_t d, std::uint32_t t, char between) {
  std::string text;
  for (std::uint32_t k = 0; k < d; ++k) {
    const Distances s = version_difference(column.mode, column.rounding, d, t, k);
    text += (k == 0 ? "" : std::string(1, between)) +
            std::to_string(column.forward ? s.forward : s.backward);
  }
  return text;
}

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, separator);) {
    cells.push_back(cell);
  }
  return cells;
}

// D | T | forward: half even, half up, floor, horizon, local | backward: half even, half up, floor,
// horizon
constexpr const char* kTable[] = {
    "2|1|1,0|1,1|1,0|1,1|1,0|0,0|0,0|0,0|0,1",
    "2|2|1,1|1,1|1,0|1,1|1,0|0,0|1,1|0,0|0,1",
    "2|4|1,1|1,1|1,0|1,1|1,0|1,1|1,1|0,0|0,1",
    "2|8|1,1|1,1|1,0|1,1|1,0|1,1|1,1|0,0|0,1",
    "3|1|2,2,1|2,2,1|2,1,1|2,2,1|2,1,0|0,0,1|0,0,1|0,0,1|0,1,1",
    "3|2|2,1,1|2,1,1|1,1,1|1,2,1|1,1,0|0,0,1|1,1,1|0,0,1|0,1,1",
    "3|4|1,1,1|1,1,1|1,1,1|1,2,1|1,1,0|1,1,1|1,1,1|0,0,1|0,1,1",
    "3|8|1,1,1|1,1,1|1,1,1|1,2,1|1,1,0|1,1,1|1,1,1|0,0,1|0,1,1",
    "4|1|3,2,2,2|3,3,2,2|3,2,2,1|3,3,2,2|3,2,1,0|0,0,1,1|0,0,1,1|0,0,1,1|0,1,1,2",
    "4|2|2,2,2,1|2,2,2,1|2,1,1,1|2,2,2,1|2,1,1,0|0,0,1,1|1,1,1,1|0,0,1,1|0,1,1,1",
    "4|4|2,1,1,1|2,1,1,1|1,1,1,1|1,2,2,1|1,1,1,0|1,1,1,1|1,1,1,1|0,0,1,1|0,1,1,1",
    "4|8|1,1,1,1|1,1,1,1|1,1,1,1|1,2,2,1|1,1,1,0|1,1,1,1|1,1,1,1|0,0,1,1|0,1,1,1",
    "8|1|7,6,6,6,5,4,4,4|7,7,6,6,5,5,4,4|7,6,6,5,5,4,4,3|7,7,6,6,5,5,4,4|7,6,5,4,3,2,1,0|"
    "0,0,1,1,2,2,3,3|0,0,1,1,2,2,3,3|0,0,1,1,2,2,3,3|0,1,1,2,2,3,3,4",
    "8|2|4,4,4,3,3,3,2,2|4,4,4,3,3,3,3,2|4,3,3,3,3,2,2,2|4,4,4,3,3,3,3,2|4,3,3,2,2,1,1,0|"
    "0,0,1,1,2,2,2,2|1,1,1,1,2,2,2,2|0,0,1,1,1,1,2,2|0,1,1,1,1,2,2,2",
    "8|4|2,2,2,2,2,2,2,2|3,2,2,2,2,2,2,2|2,2,2,2,2,1,1,1|2,3,3,2,2,2,2,1|2,2,2,1,1,1,1,0|"
    "1,1,1,1,1,1,2,2|1,1,1,1,1,1,2,2|0,0,1,1,1,1,1,1|0,1,1,1,1,1,1,1",
    "8|8|2,2,2,2,2,1,1,1|2,2,2,2,2,1,1,1|1,1,1,1,1,1,1,1|1,2,2,2,2,2,2,1|1,1,1,1,1,1,1,0|"
    "1,1,1,1,1,1,1,1|1,1,1,1,1,1,1,1|0,0,1,1,1,1,1,1|0,1,1,1,1,1,1,1",
};

TEST_CASE("version difference: every mode and rounding gives the table of methods.md") {
  for (const char* line : kTable) {
    CAPTURE(line);
    const std::vector<std::string> cells = split(line, '|');
    REQUIRE(cells.size() == 2 + std::size(kColumns));
    const auto d = static_cast<std::uint32_t>(std::stoul(cells[0]));
    const auto t = static_cast<std::uint32_t>(std::stoul(cells[1]));
    for (std::size_t column = 0; column < std::size(kColumns); ++column) {
      CAPTURE(column);
      CHECK(vector_of(kColumns[column], d, t, ',') == cells[2 + column]);
    }
    for (std::uint32_t k = 0; k < d; ++k) {
      CHECK(version_difference(VersionDifference::Local, Rounding::Floor, d, t, k).backward == 0);
    }
  }
}

TEST_CASE("version difference: every line of xpipe_s_vectors.csv is reproduced") {
  const char* shared = std::getenv("XPIPE_SHARED");
  const std::filesystem::path path =
      std::filesystem::path(shared != nullptr ? shared : XPIPE_SOURCE_DIR "/../shared") /
      "reference/numbers/xpipe_s_vectors.csv";
  std::ifstream file(path);
  if (!file) {
    std::cout << "[SKIPPED] there is no " << path.string() << std::endl;
    return;
  }
  std::string line;
  std::getline(file, line);
  REQUIRE(line ==
          "D,T,forward_half_even,forward_half_up,forward_floor,forward_horizon,forward_local_p0,"
          "backward_half_even,backward_half_up,backward_floor,backward_horizon");
  int lines = 0;
  for (; std::getline(file, line); ++lines) {
    CAPTURE(line);
    const std::vector<std::string> cells = split(line, ',');
    REQUIRE(cells.size() == 2 + std::size(kColumns));
    const auto d = static_cast<std::uint32_t>(std::stoul(cells[0]));
    const auto t = static_cast<std::uint32_t>(std::stoul(cells[1]));
    for (std::size_t column = 0; column < std::size(kColumns); ++column) {
      CHECK(vector_of(kColumns[column], d, t, ' ') == cells[2 + column]);
    }
  }
  CHECK(lines == 16);
}

TEST_CASE("version difference: the paper's formula under floor is SpecTrain's distance over T") {
  // floor((D+T-k/2-2)/T) = ceil((floor(k/2)+D-k-1)/T), backward ceil(floor(k/2)/T)
  for (std::uint32_t d = 1; d < 20; ++d) {
    for (std::uint32_t t = 1; t < 20; ++t) {
      for (std::uint32_t k = 0; k < d; ++k) {
        const Distances s = version_difference(VersionDifference::Paper, Rounding::Floor, d, t, k);
        CHECK(s.forward == (k / 2 + d - k - 1 + t - 1) / t);
        CHECK(s.backward == (k / 2 + t - 1) / t);
      }
    }
  }
}

TEST_CASE("version difference: one stage predicts nothing, but for the nearest roundings") {
  // round((T-1)/T) is 1 from T = 3 on, with half up from T = 2 on
  for (std::uint32_t t = 1; t <= 8; ++t) {
    CAPTURE(t);
    const Distances none;
    CHECK(version_difference(VersionDifference::Paper, Rounding::Floor, 1, t, 0) == none);
    CHECK(version_difference(VersionDifference::Horizon, Rounding::Floor, 1, t, 0) == none);
    CHECK(version_difference(VersionDifference::Local, Rounding::Floor, 1, t, 0) == none);
    const ir::Distance even = t >= 3 ? 1 : 0;
    const ir::Distance up = t >= 2 ? 1 : 0;
    CHECK(version_difference(VersionDifference::Paper, Rounding::HalfEven, 1, t, 0) ==
          Distances{even, even});
    CHECK(version_difference(VersionDifference::Paper, Rounding::HalfUp, 1, t, 0) ==
          Distances{up, up});
  }
}

TEST_CASE("version difference: half up equals the horizon on every stage where T is 1") {
  int cases = 0;
  for (std::uint32_t d = 1; d <= 12; ++d) {
    for (std::uint32_t k = 0; k < d; ++k, ++cases) {
      CHECK(version_difference(VersionDifference::Paper, Rounding::HalfUp, d, 1, k).forward ==
            version_difference(VersionDifference::Horizon, Rounding::Floor, d, 1, k).forward);
    }
  }
  CHECK(cases == 78);
}

TEST_CASE("version difference: at the input stage paper, horizon and local agree") {
  for (std::uint32_t d = 1; d <= 12; ++d) {
    for (std::uint32_t t = 1; t <= 10; ++t) {
      const ir::Distance local =
          version_difference(VersionDifference::Local, Rounding::Floor, d, t, 0).forward;
      CHECK(local == (d - 1 + t - 1) / t);
      CHECK(version_difference(VersionDifference::Horizon, Rounding::Floor, d, t, 0).forward ==
            local);
      CHECK(version_difference(VersionDifference::Paper, Rounding::Floor, d, t, 0).forward ==
            local);
    }
  }
}

}  // namespace
}  // namespace xpipe::policies
