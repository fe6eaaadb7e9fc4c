#include <iostream>

#include "app/commands.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace xpipe::app {

namespace {

using Json = nlohmann::ordered_json;

std::string legal_values(const scheduler::OptionSpec& option) {
  if (option.range) {
    return fmt::format("{} to {}", option.range->low, option.range->high);
  }
  return fmt::format("{}", fmt::join(option.values, "|"));
}

void print_people(const std::vector<scheduler::Policy>& policies) {
  for (const scheduler::Policy& policy : policies) {
    std::cout << fmt::format("{}\n  {}\n  source       {}\n", policy.name, policy.summary,
                             policy.source);
    if (policy.whole_mini_batch) {
      std::cout << "  unit         the whole mini-batch: runs with T = 1\n";
    }
    const scheduler::PromiseText& promise = policy.promise_text;
    std::cout << fmt::format(
        "  bubble       {}\n  in flight    {}\n  versions     {}\n  staleness    {}\n"
        "  prediction   {}\n",
        promise.bubble, promise.in_flight, promise.versions_held, promise.staleness,
        promise.prediction);
    for (const scheduler::OptionSpec& option : policy.options) {
      std::cout << fmt::format("  --set {}={}   (default {})\n      {}\n", option.name,
                               legal_values(option), option.default_value, option.help);
    }
    std::cout << '\n';
  }
  std::cout
      << "D stages, T micro-batches a mini-batch, N mini-batches, k the stage from 0. With\n"
         "--replicas, R replicas of stage k and later stand for D-k, and what a stage has in\n"
         "flight is divided among its r replicas, rounded up; the bubble is without them.\n";
}

void print_json(const std::vector<scheduler::Policy>& policies) {
  Json document = {{"format", "xpipe.policies"}, {"version", 1}, {"policies", Json::array()}};
  for (const scheduler::Policy& policy : policies) {
    Json options = Json::array();
    for (const scheduler::OptionSpec& option : policy.options) {
      Json entry = {{"name", option.name}, {"default", option.default_value}};
      if (option.range) {
        entry["low"] = option.range->low;
        entry["high"] = option.range->high;
      } else {
        entry["values"] = option.values;
      }
      entry["help"] = option.help;
      options.push_back(entry);
    }
    const scheduler::PromiseText& promise = policy.promise_text;
    document["policies"].push_back({{"name", policy.name},
                                    {"summary", policy.summary},
                                    {"source", policy.source},
                                    {"whole_mini_batch", policy.whole_mini_batch},
                                    {"promises",
                                     {{"bubble", promise.bubble},
                                      {"in_flight", promise.in_flight},
                                      {"versions_held", promise.versions_held},
                                      {"staleness", promise.staleness},
                                      {"prediction", promise.prediction}}},
                                    {"options", options}});
  }
  std::cout << document.dump(2) << '\n';
}

}  // namespace

void add_policies_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("policies", "list policies, their options and promises");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one JSON document instead of text");
  command->footer("Example: xpipe policies");
  command->callback([&context, json] {
    if (*json) {
      print_json(context.policies.all());
    } else {
      print_people(context.policies.all());
    }
  });
}

}  // namespace xpipe::app
