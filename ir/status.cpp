#include "ir/status.h"

#include <cstdlib>
#include <iostream>

namespace xpipe::ir {

std::string Error::to_string() const {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) {
      text += '\n';
    }
    if (!d.where.empty()) {
      text += d.where + ": ";
    }
    text += d.message;
    if (!d.code.empty()) {
      text += " [" + d.code + "]";
    }
  }
  return text;
}

Error make_error(ErrorKind kind, std::string code, std::string where, std::string message) {
  return Error{kind, {Diagnostic{std::move(code), std::move(where), std::move(message)}}};
}

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::cerr << message_.str() << '\n' << std::flush;
  std::abort();
}

}  // namespace xpipe::ir
