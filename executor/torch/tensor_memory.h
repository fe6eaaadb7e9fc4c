// Memory of tensors that is freed stays with the process, to be used for the next ones. glibc gives
// a thread an arena of its own, made of heaps of 64 MiB, and returns a heap to the kernel as soon
// as it is empty; a micro-batch of activations fills some, and the next one gets them again,
// zeroed, page by page, while the other threads' faults wait. W1 of bench/peers, two stages: 14,000
// to 18,000 faults a mini-batch, of 1.5 to 3 us each on a virtual machine; with this about none,
// and a quarter less memory at the peak, as one stage's freed blocks serve another.
#pragma once

#include <malloc.h>

namespace xpipe::executor::nn {

/// For a process that trains. Call it once, before other threads start. Large blocks are taken
/// under one lock, for well under a microsecond each; small ones come from caches of the threads.
inline void keep_tensor_memory() {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread is there yet
  mallopt(M_ARENA_MAX, 1);        // One heap for all threads, grown from the process's own.
  mallopt(M_MMAP_MAX, 0);         // Large blocks come from it, too.
  mallopt(M_TRIM_THRESHOLD, -1);  // Its top is never given back.
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace xpipe::executor::nn
