#include "app/exit_status.h"

#include <iostream>

namespace xpipe::app {

int exit_status_of(ir::ErrorKind kind) {
  switch (kind) {
    case ir::ErrorKind::Usage:
      return kExitUsage;
    case ir::ErrorKind::BadInput:
      return kExitBadInput;
    case ir::ErrorKind::Illegal:
      return kExitIllegal;
    case ir::ErrorKind::Runtime:
    case ir::ErrorKind::Internal:
      return kExitRuntime;
    case ir::ErrorKind::Interrupted:
      return kExitInterrupted;
  }
  return kExitRuntime;
}

int report_error(const ir::Error& error) {
  for (const ir::Diagnostic& diagnostic : error.diagnostics) {
    std::cerr << "xpipe: " << (diagnostic.where.empty() ? "" : diagnostic.where + ": ")
              << diagnostic.message << (diagnostic.code.empty() ? "" : " [" + diagnostic.code + "]")
              << '\n';
  }
  return exit_status_of(error.kind);
}

void print_note(const std::string& text) {
  std::cerr << "xpipe: note: " << text << '\n';
}

}  // namespace xpipe::app
