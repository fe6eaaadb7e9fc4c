#include "executor/processes/launcher.h"

#include <utility>

#include <unistd.h>

namespace xpipe::executor {

Launcher::Launcher(std::string name) : name_(std::move(name)), parent_(getppid()) {}

bool Launcher::is_gone() const {
  return !name_.empty() && getppid() != parent_;
}

ir::Error Launcher::error() const {
  return ir::make_error(ir::ErrorKind::Runtime, "launcher-gone", "",
                        name_ + ", which had started this rank (process " +
                            std::to_string(parent_) +
                            "), is gone: killed, or told twice to stop; its ranks end, too");
}

}  // namespace xpipe::executor
