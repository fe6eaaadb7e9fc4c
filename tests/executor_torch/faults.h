// What a reader says, as text.
#pragma once

#include <string>

#include "ir/status.h"

namespace xpipe::tests {

inline std::string fault_of(const ir::Status& status) {
  return status.ok() ? "ok" : status.error().to_string();
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace xpipe::tests
