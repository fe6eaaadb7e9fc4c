// Whether the launcher that started this process is still there. mpirun leaves its processes behind
// when it is killed or hears Ctrl-C twice within a second; they would train on, unheard, and hold
// the port against the next run.
#pragma once

#include <string>

#include <sys/types.h>

#include "ir/status.h"

namespace xpipe::executor {

class Launcher {
 public:
  /// None that matters: whoever started a run by hand may end before it.
  Launcher() = default;
  /// The parent of this process, called `name` in messages.
  explicit Launcher(std::string name);

  /// Thread-safe. A launcher that was gone before the constructor ran is not missed; nor is one
  /// that runs a shell that runs this process.
  [[nodiscard]] bool is_gone() const;

  /// What is to be said then: Runtime "launcher-gone".
  [[nodiscard]] ir::Error error() const;

 private:
  std::string name_;  ///< empty: none
  pid_t parent_ = 0;
};

}  // namespace xpipe::executor
