#include <csignal>

#include "app/commands.h"

int main(int argc, char** argv) {
  // A limit on the size of files is then a write that fails, told like a disk that is full.
  std::signal(SIGXFSZ, SIG_IGN);
  return xpipe::app::run(argc, argv);
}
