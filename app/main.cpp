#include "app/commands.h"

int main(int argc, char** argv) {
  return xpipe::app::run(argc, argv);
}
