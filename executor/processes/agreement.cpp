#include "executor/processes/agreement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

#include <nlohmann/json.hpp>

#include "executor/processes/exchange.h"

namespace xpipe::executor {

namespace {

using Json = nlohmann::json;

std::string rank_list(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

/// The names of all ranks' items, each once, in the order of the first that has it.
std::vector<std::string> names_of(const std::vector<Items>& by_rank) {
  std::vector<std::string> names;
  for (const Items& items : by_rank) {
    for (const auto& [name, value] : items) {
      if (std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

std::string value_of(const Items& items, const std::string& name) {
  const auto found = std::ranges::find(items, name, &std::pair<std::string, std::string>::first);
  return found == items.end() ? "nothing" : found->second;
}

ir::Error unreadable(const std::string& what) {
  return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "",
                        "what another rank holds cannot be read: " + what);
}

}  // namespace

std::string fingerprint(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[(hash >> (4 * i)) & 15];
  }
  return text;
}

ir::Status compare_items(const std::vector<Items>& by_rank) {
  ir::Error error{ir::ErrorKind::Runtime, {}};
  for (const std::string& name : names_of(by_rank)) {
    std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      const std::string value = value_of(by_rank[rank], name);
      auto group = std::ranges::find(groups, value,
                                     &std::pair<std::string, std::vector<std::size_t>>::first);
      if (group == groups.end()) {
        group = groups.insert(groups.end(), {value, {}});
      }
      group->second.push_back(rank);
    }
    if (groups.size() > 1) {
      std::string message = "is not the same everywhere: ";
      for (std::size_t i = 0; i < groups.size(); ++i) {
        message += (i == 0 ? "" : "; ") + groups[i].first + " on " + rank_list(groups[i].second);
      }
      error.diagnostics.push_back({"ranks-differ", name, std::move(message)});
    }
  }
  return error.diagnostics.empty() ? ir::Status() : ir::Status(std::move(error));
}

ir::Status agree(Peers& peers, const Items& items) {
  const auto gathered = gather_at_zero(peers, Json(items).dump());
  if (!gathered.ok()) {
    return gathered.error();
  }
  if (peers.rank() == 0) {
    std::vector<Items> by_rank;
    by_rank.reserve(gathered.value().size());
    for (const std::string& text : gathered.value()) {
      try {
        by_rank.push_back(Json::parse(text).get<Items>());
      } catch (const Json::exception& exception) {
        return unreadable(exception.what());
      }
    }
    if (ir::Status same = compare_items(by_rank); !same.ok()) {
      return same;
    }
  }
  // The word that all is well; a difference reaches the others as a failure.
  return broadcast_from(peers, 0, "same").status();
}

}  // namespace xpipe::executor
