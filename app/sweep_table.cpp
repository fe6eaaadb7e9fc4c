#include "app/sweep_table.h"

#include <algorithm>

#include "app/run_summary.h"
#include "app/table.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace xpipe::app {

namespace {

const std::vector<std::string> kResults = {"ms/mini-batch", "samples/s", "busy",
                                           "bubble",        "comm",      "memory",
                                           "staleness F",   "B",         "weights held"};

std::vector<std::string> results_of(const nlohmann::json& record) {
  const auto steady = record.find("steady_ns_per_mini_batch");
  const auto rate = record.find("samples_per_s");
  const auto memory = record.at("peak_memory_bytes").get<ir::Bytes>();
  return {ms_text(steady == record.end() ? std::optional<ir::Nanos>() : steady->get<ir::Nanos>()),
          rate_text(rate == record.end() ? std::optional<double>() : rate->get<double>()),
          percent_text(record.at("busiest_utilization").get<double>()),
          percent_text(record.at("bubble_of_total").get<double>()),
          percent_text(record.at("exposed_of_total").get<double>()),
          memory > 0 ? bytes_text(memory) : "-",
          std::to_string(record.at("forward_staleness_max").get<std::int64_t>()),
          std::to_string(record.at("backward_staleness_max").get<std::int64_t>()),
          std::to_string(record.at("versions_held_max").get<std::uint32_t>())};
}

}  // namespace

void SweepTable::add(const std::string& record) {
  const nlohmann::json json = nlohmann::json::parse(record);
  Row row;
  row.set_up = json.at("set_up").get<std::uint64_t>();
  if (const auto error = json.find("error"); error != json.end()) {
    worst_status_ = std::max(worst_status_, error->at("status").get<int>());
    row.results = {"! " + error->at("code").get<std::string>()};
    for (const nlohmann::json& fault : error->at("faults")) {
      const std::string where = fault.at("where").get<std::string>();
      Fault& known = faults_[fmt::format(
          "{}{}{}{}", where, where.empty() ? "" : ": ", fault.at("message").get<std::string>(),
          fmt::format(" [{}]", fault.at("code").get<std::string>()))];
      known.first = known.count == 0 ? row.set_up : known.first;
      ++known.count;
    }
  } else {
    row.results = results_of(json);
    if (json.contains("samples_per_s")) {
      row.samples_per_s = json.at("samples_per_s").get<double>();
    }
  }
  rows_.push_back(std::move(row));
}

std::string SweepTable::set_up_text(std::uint64_t i) const {
  std::string text;
  const std::vector<std::size_t> values = axes_.values_of(i);
  for (std::size_t a = 0; a < values.size(); ++a) {
    const SweepAxis& axis = axes_.axes()[a];
    if (axis.values.size() > 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.key, axis.shown(values[a]));
    }
  }
  return text;
}

std::string SweepTable::to_string(const std::optional<std::size_t>& best) const {
  std::vector<std::string> heads;
  for (const SweepAxis& axis : axes_.axes()) {
    if (axis.values.size() > 1) {
      heads.push_back("<" + axis.key);
    }
  }
  heads.insert(heads.end(), kResults.begin(), kResults.end());
  Table table(heads);
  std::vector<const Row*> shown;
  for (const Row& row : rows_) {
    if (!best.has_value() || row.samples_per_s.has_value()) {
      shown.push_back(&row);
    }
  }
  if (best.has_value()) {
    std::ranges::stable_sort(shown, std::greater<>(),
                             [](const Row* row) { return *row->samples_per_s; });
    shown.resize(std::min(shown.size(), *best));
  }
  for (const Row* row : shown) {
    std::vector<std::string> cells;
    const std::vector<std::size_t> values = axes_.values_of(row->set_up);
    for (std::size_t a = 0; a < values.size(); ++a) {
      if (axes_.axes()[a].values.size() > 1) {
        cells.push_back(axes_.axes()[a].shown(values[a]));
      }
    }
    cells.insert(cells.end(), row->results.begin(), row->results.end());
    cells.resize(heads.size());
    table.add_row(std::move(cells));
  }
  return table.to_string() +
         "ms/mini-batch, samples/s: in steady state. Over the whole run: busy: the busiest device; "
         "bubble:\nidle time of all devices; of that, comm: while the message waited for was on "
         "its "
         "way; memory: the\npeak of the fullest device; staleness of forwards (F) and backwards "
         "(B), weights held: the most.\n";
}

std::vector<std::string> SweepTable::faults() const {
  std::vector<std::pair<std::uint64_t, std::string>> lines;
  for (const auto& [message, fault] : faults_) {
    const std::string others =
        fault.count > 1 ? fmt::format(" (and {} more)", fault.count - 1) : std::string();
    lines.emplace_back(fault.first, fmt::format("set-up {} ({}){}: {}", fault.first,
                                                set_up_text(fault.first), others, message));
  }
  std::ranges::sort(lines);
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (auto& [first, text] : lines) {
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace xpipe::app
