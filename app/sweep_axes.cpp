#include "app/sweep_axes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "app/arguments.h"
#include "app/set_up_parser.h"
#include "app/simulate_arguments.h"
#include <fmt/format.h>

namespace xpipe::app {

namespace {

/// What makes another schedule, outermost first. Options not named here come after, in the order of
/// the help.
constexpr std::array<std::string_view, 14> kNesting = {
    "--policy",       "--profile",   "--samples",  "--stages",     "--devices",
    "--partition",    "--placement", "--replicas", "--batch-size", "--micro-batches",
    "--mini-batches", "--set",       "--sends",    "--recompute"};

/// Their value is a list, or a file's name, which may hold commas.
const std::set<std::string_view> kWholeValues = {"--profile",   "--cluster",  "--partition",
                                                 "--placement", "--replicas", "--memory-limit"};

/// What has no meaning for many set-ups at once, and what to do instead.
const std::map<std::string_view, const char*> kRefused = {
    {"--schedule", "is one schedule; a sweep compiles its own, from --policy"},
    {"--trace", "holds one run; simulate the set-up of interest without --sweep"},
    {"--what-if", "is for one set-up; simulate the one of interest without --sweep"},
    {"--verbose", "shows one cluster; simulate the set-up of interest without --sweep"},
    {"--memory-over-time", "is for one set-up; simulate the one of interest without --sweep"},
    {"--replay-all", "is for one set-up; simulate the one of interest without --sweep"}};

std::size_t nesting_of(const std::string& option) {
  return static_cast<std::size_t>(std::ranges::find(kNesting, option) - kNesting.begin());
}

std::string key_of(std::string_view option) {
  std::string key(option.substr(2));
  std::ranges::replace(key, '-', '_');
  return key;
}

/// The axes of one option: one, or of --set one for each key.
std::vector<SweepAxis> axes_of(const RawOption& option) {
  std::vector<SweepAxis> axes;
  const auto axis = [&axes, &option](const std::string& key) -> SweepAxis& {
    const auto found = std::ranges::find(axes, key, &SweepAxis::key);
    if (found != axes.end()) {
      return *found;
    }
    axes.push_back({option.name, key, {}});
    return axes.back();
  };
  for (const std::string& word : option.words) {
    if (option.name == "--set") {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const std::string values = equals == std::string::npos ? "" : word.substr(equals + 1);
      for (const std::string& value : split_list(values)) {
        axis("set." + name)
            .values.push_back(equals == std::string::npos ? word
                                                          : fmt::format("{}={}", name, value));
      }
    } else if (kWholeValues.contains(option.name)) {
      axis(key_of(option.name)).values.push_back(word);
    } else {
      for (const std::string& value : split_list(word)) {
        axis(key_of(option.name)).values.push_back(value);
      }
    }
  }
  return axes;
}

/// Every value that the option refuses, or that is there twice.
void check_values(const SweepAxis& axis, SetUpParser& parser, ir::Error& error) {
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (!seen.insert(value).second) {
      error.diagnostics.push_back(
          {"twice", axis.option, fmt::format("'{}' is given twice; keep one", value)});
    }
    const auto parsed = parser.parse({axis.option, value});
    ir::Status status = parsed.status();
    if (status.ok() && axis.option == "--set") {
      status = parse_settings({value}).status();
    }
    if (!status.ok()) {
      error.diagnostics.insert(error.diagnostics.end(), status.error().diagnostics.begin(),
                               status.error().diagnostics.end());
    }
  }
}

}  // namespace

void add_raw_options(CLI::App& command, std::vector<std::unique_ptr<RawOption>>& options) {
  CLI::App single;
  SimulateArguments arguments;
  add_simulate_options(single, arguments);
  for (const CLI::Option* option : single.get_options()) {
    if (option->get_lnames().empty() || option == single.get_help_ptr()) {
      continue;
    }
    const std::string name = "--" + option->get_lnames().front();
    if (name == "--json") {
      continue;
    }
    options.push_back(std::make_unique<RawOption>(RawOption{name, {}}));
    if (const auto refused = kRefused.find(name); refused != kRefused.end()) {
      command
          .add_option_function<std::vector<std::string>>(
              name,
              [name, why = refused->second](const std::vector<std::string>&) {
                throw CLI::ValidationError(name, fmt::format("{} (found --sweep)", why));
              },
              option->get_description())
          ->expected(0, 1)
          ->group("");  // not in the help
      continue;
    }
    command.add_option(name, options.back()->words, option->get_description())
        ->type_name(option->get_type_name())
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

std::string SweepAxis::shown(std::size_t value) const {
  const std::string& text = values[value];
  return option == "--set" ? text.substr(text.find('=') + 1) : text;
}

ir::Result<SweepAxes> SweepAxes::of(const std::vector<std::unique_ptr<RawOption>>& options) {
  SweepAxes sweep;
  ir::Error error{ir::ErrorKind::Usage, {}};
  SetUpParser parser;
  for (const auto& option : options) {
    for (SweepAxis& axis : axes_of(*option)) {
      check_values(axis, parser, error);
      sweep.axes_.push_back(std::move(axis));
    }
  }
  std::ranges::stable_sort(sweep.axes_, {},
                           [](const SweepAxis& axis) { return nesting_of(axis.option); });
  for (const SweepAxis& axis : sweep.axes_) {
    if (axis.values.size() > kMaxSetUps / sweep.set_ups_) {
      error.diagnostics.push_back(
          {"too-many", "--sweep",
           fmt::format("makes more than {} set-ups; give fewer values", kMaxSetUps)});
      break;
    }
    sweep.set_ups_ *= axis.values.size();
  }
  if (!error.diagnostics.empty()) {
    return error;
  }
  return sweep;
}

const SweepAxis* SweepAxes::find(const std::string& option) const {
  const auto found = std::ranges::find(axes_, option, &SweepAxis::option);
  return found == axes_.end() ? nullptr : &*found;
}

std::vector<std::size_t> SweepAxes::values_of(std::uint64_t i) const {
  std::vector<std::size_t> values(axes_.size());
  for (std::size_t a = axes_.size(); a > 0; --a) {
    values[a - 1] = i % axes_[a - 1].values.size();
    i /= axes_[a - 1].values.size();
  }
  return values;
}

}  // namespace xpipe::app
