#include "executor/processes/failure.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace xpipe::executor {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostDiagnostics = 16;
constexpr std::size_t kLongestText = 4000;

std::string cut(const std::string& text) {
  return text.size() <= kLongestText ? text : text.substr(0, kLongestText) + " ...";
}

}  // namespace

std::string to_bytes(const Failure& failure) {
  Json json = {{"rank", failure.rank},
               {"signal", failure.signal},
               {"kind", static_cast<int>(failure.error.kind)},
               {"diagnostics", Json::array()}};
  const std::size_t count = std::min(failure.error.diagnostics.size(), kMostDiagnostics);
  for (std::size_t i = 0; i < count; ++i) {
    const ir::Diagnostic& diagnostic = failure.error.diagnostics[i];
    json["diagnostics"].push_back(
        {diagnostic.code, cut(diagnostic.where), cut(diagnostic.message)});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ir::Result<Failure> failure_from(const std::string& bytes) {
  try {
    const Json json = Json::parse(bytes);
    Failure failure;
    failure.rank = json.at("rank").get<std::uint32_t>();
    failure.signal = json.at("signal").get<int>();
    const int kind = json.at("kind").get<int>();
    failure.error.kind = kind >= 0 && kind <= static_cast<int>(ir::ErrorKind::Internal)
                             ? static_cast<ir::ErrorKind>(kind)
                             : ir::ErrorKind::Internal;
    for (const Json& diagnostic : json.at("diagnostics")) {
      failure.error.diagnostics.push_back({diagnostic.at(0).get<std::string>(),
                                           diagnostic.at(1).get<std::string>(),
                                           diagnostic.at(2).get<std::string>()});
    }
    return failure;
  } catch (const Json::exception& error) {
    return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "",
                          std::string("a failure that cannot be read: ") + error.what());
  }
}

ir::Error shown(const Failure& failure) {
  ir::Error error = failure.error;
  for (ir::Diagnostic& diagnostic : error.diagnostics) {
    std::string where = "rank " + std::to_string(failure.rank);
    const std::string& place = diagnostic.where;
    const auto digits = static_cast<std::size_t>(
        std::ranges::find_if(place, [](char c) { return c < '0' || c > '9'; }) - place.begin());
    if (digits > 0 && digits < place.size()) {
      where += ", stage " + place.substr(0, digits) + ", task " + place;
    } else if (!place.empty()) {
      where += ", " + place;
    }
    diagnostic.where = std::move(where);
  }
  return error;
}

}  // namespace xpipe::executor
