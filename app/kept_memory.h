// Memory that is freed stays with the process. glibc gives large blocks back to the kernel at once
// and gets them again zeroed, page by page: on a virtual machine 2 to 3 microseconds for each 4
// KiB, more than compiler and simulator need to fill them, and a sweep frees as much as it asks for
// thousands of times.
#pragma once

#include <malloc.h>

namespace xpipe::app {

/// Call it once, before other threads start.
inline void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);         // Large blocks come from the heap, too.
  mallopt(M_TRIM_THRESHOLD, -1);  // Its top is never given back.
}

}  // namespace xpipe::app
