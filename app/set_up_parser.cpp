#include "app/set_up_parser.h"

#include <algorithm>
#include <utility>

namespace xpipe::app {

ir::Result<SimulateArguments> SetUpParser::parse(std::vector<std::string> words) {
  arguments_ = SimulateArguments();
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app_.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    // "--stages: found ..." names the option itself.
    const std::string text = error.what();
    const std::size_t colon = text.find(": ");
    const bool is_option = text.starts_with("--") && colon != std::string::npos;
    return ir::make_error(ir::ErrorKind::Usage, "option", is_option ? text.substr(0, colon) : "",
                          is_option ? text.substr(colon + 2) : text);
  }
  return arguments_;
}

}  // namespace xpipe::app
