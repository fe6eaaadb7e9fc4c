#include "scheduler/policy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "ir/decimal.h"

namespace xpipe::scheduler {

namespace {

using ir::Diagnostic;
using ir::Error;
using ir::ErrorKind;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::string legal_values(const OptionSpec& spec) {
  if (spec.range) {
    return "a number from " + ir::number_text(spec.range->low) + " to " +
           ir::number_text(spec.range->high);
  }
  return "one of: " + joined(spec.values);
}

bool is_legal(const OptionSpec& spec, const std::string& value) {
  if (!spec.range) {
    return std::find(spec.values.begin(), spec.values.end(), value) != spec.values.end();
  }
  double number = 0.0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc{} && end == value.data() + value.size() && std::isfinite(number) &&
         number >= spec.range->low && number <= spec.range->high;
}

}  // namespace

bool PlanRequest::is_replicated() const {
  return std::any_of(replicas.begin(), replicas.end(), [](std::uint32_t r) { return r > 1; });
}

std::uint32_t PlanRequest::place(std::uint32_t stage) const {
  return replicas.empty() ? stage : std::accumulate(replicas.begin(), replicas.begin() + stage, 0U);
}

std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

void PolicyRegistry::add(Policy policy) {
  XPIPE_CHECK(!find(policy.name).ok()) << "policy " << policy.name << " is registered twice";
  policies_.push_back(std::move(policy));
}

ir::Result<const Policy*> PolicyRegistry::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const Policy& policy : policies_) {
    if (policy.name == name) {
      return &policy;
    }
    names.push_back(policy.name);
  }
  std::string message = "there is no policy '" + std::string(name) + "'";
  if (const auto nearest = nearest_name(name, names)) {
    message += "; did you mean '" + *nearest + "'?";
  }
  message += " Policies: " + joined(names);
  return ir::make_error(ErrorKind::Usage, "unknown-policy", "--policy", message);
}

ir::Result<Options> resolve_options(const Policy& policy, const Options& given) {
  Options options;
  std::vector<std::string> names;
  for (const OptionSpec& spec : policy.options) {
    options[spec.name] = spec.default_value;
    names.push_back(spec.name);
  }
  Error error{ErrorKind::Usage, {}};
  const std::string whose = "policy '" + policy.name + "'";
  for (const auto& [name, value] : given) {
    const auto spec = std::find_if(policy.options.begin(), policy.options.end(),
                                   [&](const OptionSpec& s) { return s.name == name; });
    std::string where = "--set ";
    where.append(name).append("=").append(value);
    if (spec == policy.options.end()) {
      std::string message = whose;
      message.append(" has no option '").append(name).append("'");
      if (const auto nearest = nearest_name(name, names)) {
        message += "; did you mean '" + *nearest + "'?";
      }
      message += names.empty() ? " It has no options" : " Its options: " + joined(names);
      error.diagnostics.push_back({"unknown-option", where, message});
    } else if (!is_legal(*spec, value)) {
      std::string message = "'";
      message.append(value).append("' is not a value of option '").append(name).append("' of ");
      message.append(whose).append("; expected ").append(legal_values(*spec));
      error.diagnostics.push_back({"option-value", where, message});
    } else {
      options[name] = value;
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return options;
}

}  // namespace xpipe::scheduler
