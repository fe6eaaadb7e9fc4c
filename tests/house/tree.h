// The source tree as the house tests read it: paths relative to its root, and lines.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xpipe::house {

/// Every file below the given folders whose suffix is one of `suffixes` (".h"), sorted, as a path
/// relative to the root with '/'. A folder that does not exist holds no files.
std::vector<std::string> files_below(const std::vector<std::string>& folders,
                                     const std::set<std::string>& suffixes);

std::vector<std::string> lines_of(const std::string& path);

/// The folder of a path: "executor/torch" of "executor/torch/model.h"; empty at the root.
std::string folder_of(std::string_view path);

/// The last part of a path without its suffix: "model" of "executor/torch/model.h".
std::string stem_of(std::string_view path);

}  // namespace xpipe::house
