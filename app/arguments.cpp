#include "app/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "ir/decimal.h"

namespace xpipe::app {

namespace {

std::optional<std::uint32_t> parse_whole(const std::string& word,
                                         std::uint32_t low,
                                         std::uint32_t high) {
  std::uint32_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || stop != end || number < low || number > high) {
    return std::nullopt;
  }
  return number;
}

[[noreturn]] void refuse(const std::string& option,
                         const std::string& found,
                         const std::string& expected) {
  throw CLI::ValidationError(option, fmt::format("found '{}', expected {}", found, expected));
}

std::string range_text(std::uint32_t low, std::uint32_t high) {
  if (high == std::numeric_limits<std::uint32_t>::max()) {
    return fmt::format("a whole number, at least {}", low);
  }
  return fmt::format("a whole number from {} to {}", low, high);
}

std::string number_text(double low, double high) {
  if (std::isinf(high)) {
    return fmt::format("a number, at least {}", low);
  }
  return fmt::format("a number from {} to {}", low, high);
}

double parse_real(const std::string& option, const std::string& word, double low, double high) {
  double number = 0.0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || stop != end || !std::isfinite(number) || number < low ||
      number > high) {
    refuse(option, word, number_text(low, high));
  }
  return number;
}

/// CLI11 hands over the words of an option; exactly one is wanted, and given once.
CLI::Option* add_option(CLI::App& app,
                        const std::string& option,
                        const std::string& type,
                        const std::string& help,
                        std::function<void(const std::string&)> take) {
  CLI::callback_t callback = [take = std::move(take), option](const CLI::results_t& words) {
    if (words.size() != 1) {
      throw CLI::ValidationError(option, fmt::format("given {} times ('{}'), expected once",
                                                     words.size(), fmt::join(words, "', '")));
    }
    take(words.front());
    return true;
  };
  // TakeAll hands repeated values to the callback, which names them all.
  return app.add_option(option, std::move(callback), help)
      ->type_name(type)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

}  // namespace

ir::Error usage(std::string option, std::string message) {
  return ir::make_error(ir::ErrorKind::Usage, "options", std::move(option), std::move(message));
}

void whole_number(CLI::App& app,
                  const std::string& option,
                  std::uint32_t& value,
                  std::uint32_t low,
                  std::uint32_t high,
                  const std::string& help) {
  add_option(app, option, "N", help, [&value, option, low, high](const std::string& word) {
    const auto number = parse_whole(word, low, high);
    if (!number) {
      refuse(option, word, range_text(low, high));
    }
    value = *number;
  })->default_str(std::to_string(value));
}

void whole_number(CLI::App& app,
                  const std::string& option,
                  std::optional<std::uint32_t>& value,
                  std::uint32_t low,
                  std::uint32_t high,
                  const std::string& help) {
  add_option(app, option, "N", help, [&value, option, low, high](const std::string& word) {
    value = parse_whole(word, low, high);
    if (!value) {
      refuse(option, word, range_text(low, high));
    }
  });
}

void whole_numbers(CLI::App& app,
                   const std::string& option,
                   std::vector<std::uint32_t>& values,
                   std::uint32_t low,
                   std::uint32_t high,
                   const std::string& help) {
  add_option(app, option, "N[,N...]", help, [&values, option, low, high](const std::string& list) {
    values.clear();
    for (const std::string& word : split_list(list)) {
      const auto number = parse_whole(word, low, high);
      if (!number) {
        refuse(option, list,
               range_text(low, high) + ", or several joined by commas; '" + word + "' is none");
      }
      values.push_back(*number);
    }
  });
}

std::optional<ir::Bytes> parse_byte_size(const std::string& word) {
  struct Unit {
    const char* name;
    std::uint32_t base;
    int power;
  };

  constexpr Unit kUnits[] = {{"", 1, 0},       {"B", 1, 0},     {"kB", 1000, 1},  {"MB", 1000, 2},
                             {"GB", 1000, 3},  {"TB", 1000, 4}, {"KiB", 1024, 1}, {"MiB", 1024, 2},
                             {"GiB", 1024, 3}, {"TiB", 1024, 4}};
  const std::size_t end = word.find_last_of("0123456789.") + 1;  // npos + 1 is 0
  const std::string number = word.substr(0, end);
  const auto* unit = std::ranges::find(kUnits, word.substr(end), &Unit::name);
  if (number.empty() || number.front() == '.' || number.back() == '.' ||
      number.find_first_not_of("0123456789.") != std::string::npos || unit == std::end(kUnits)) {
    return std::nullopt;
  }
  const std::size_t point = std::min(number.find('.'), number.size());
  constexpr std::int64_t kMillion = 1'000'000;  // the fraction counts in millionths
  const auto whole = ir::scaled_decimal(number.substr(0, point), 0);
  const auto fraction = ir::scaled_decimal("0" + number.substr(point), 6);
  if (!whole || !fraction) {
    return std::nullopt;
  }
  ir::Bytes unit_bytes = 1;
  for (int i = 0; i < unit->power; ++i) {
    unit_bytes *= unit->base;
  }
  const ir::Bytes part = (fraction->value * unit_bytes + kMillion / 2) / kMillion;
  if (whole->value > (std::numeric_limits<ir::Bytes>::max() - part) / unit_bytes) {
    return std::nullopt;
  }
  return whole->value * unit_bytes + part;
}

void byte_sizes(CLI::App& app,
                const std::string& option,
                std::vector<ir::Bytes>& values,
                const std::string& help) {
  add_option(app, option, "SIZE[,SIZE...]", help, [&values, option](const std::string& list) {
    values.clear();
    for (const std::string& word : split_list(list)) {
      const auto bytes = parse_byte_size(word);
      if (!bytes) {
        refuse(option, list,
               "a size such as 16GB, 35MiB or 40000000, or several joined by commas; '" + word +
                   "' is none");
      }
      values.push_back(*bytes);
    }
  });
}

void real_number(CLI::App& app,
                 const std::string& option,
                 std::optional<double>& value,
                 double low,
                 double high,
                 const std::string& help) {
  add_option(app, option, "X", help, [&value, option, low, high](const std::string& word) {
    value = parse_real(option, word, low, high);
  });
}

void real_number_or(CLI::App& app,
                    const std::string& option,
                    std::optional<double>& value,
                    double if_bare,
                    double low,
                    double high,
                    const std::string& help) {
  add_option(app, option, "X", help, [&value, option, if_bare, low, high](const std::string& word) {
    value = word.empty() ? if_bare : parse_real(option, word, low, high);
  })->expected(0, 1);
}

void microseconds(CLI::App& app,
                  const std::string& option,
                  std::optional<ir::Nanos>& value,
                  const std::string& help) {
  add_option(app, option, "US", help, [&value, option](const std::string& word) {
    // By hand and not by way of a double, so that 0.001 is 1 ns exactly.
    const std::size_t point = word.find('.');
    const std::string whole = word.substr(0, point);
    std::string fraction = point == std::string::npos ? "" : word.substr(point + 1);
    const bool lone_point = point != std::string::npos && fraction.empty();
    const std::size_t decimals = fraction.size();
    fraction.resize(3, '0');
    const auto us = parse_whole(whole, 0, std::numeric_limits<std::uint32_t>::max());
    const auto ns = parse_whole(fraction, 0, 999);
    if (!us || !ns || lone_point || decimals > 3) {
      refuse(option, word, "microseconds: a decimal number, at least 0, with at most 3 decimals");
    }
    value = static_cast<ir::Nanos>(*us) * 1000 + *ns;
  });
}

void one_of(CLI::App& app,
            const std::string& option,
            std::string& value,
            const std::vector<std::string>& legal,
            const std::string& help) {
  const std::string list = fmt::format("{}", fmt::join(legal, "|"));
  add_option(app, option, list, help, [&value, option, legal](const std::string& word) {
    if (std::find(legal.begin(), legal.end(), word) == legal.end()) {
      refuse(option, word, fmt::format("one of: {}", fmt::join(legal, ", ")));
    }
    value = word;
  })->default_str(value);
}

CLI::Option* text(CLI::App& app,
                  const std::string& option,
                  std::string& value,
                  const std::string& type,
                  const std::string& help) {
  return add_option(app, option, type, help, [&value, option](const std::string& word) {
    if (word.empty()) {
      refuse(option, word, "a value");
    }
    value = word;
  });
}

void settings(CLI::App& app, std::vector<std::string>& values) {
  app.add_option("--set", values, "an option of the policy (or of the model), repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

ir::Result<std::map<std::string, std::string>> parse_settings(
    const std::vector<std::string>& values) {
  std::map<std::string, std::string> settings;
  ir::Error error{ir::ErrorKind::Usage, {}};
  for (const std::string& entry : values) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
      error.diagnostics.push_back(
          {"set-form", "--set", fmt::format("found '{}', expected KEY=VALUE", entry)});
      continue;
    }
    const std::string key = entry.substr(0, equals);
    if (!settings.emplace(key, entry.substr(equals + 1)).second) {
      error.diagnostics.push_back({"set-twice", "--set",
                                   fmt::format("'{}' is given twice ('{}' and '{}'); keep one", key,
                                               settings[key], entry.substr(equals + 1))});
    }
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return settings;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = text.find(',', begin);
    words.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) {
      return words;
    }
    begin = comma + 1;
  }
}

}  // namespace xpipe::app
