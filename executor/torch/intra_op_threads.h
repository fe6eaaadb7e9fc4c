// How many threads one torch operation may use. The setting belongs to the calling thread, and
// results depend on it: every stage's thread sets it before it computes.
#pragma once

#include <cstdint>

namespace xpipe::executor::nn {

void set_intra_op_threads(std::uint32_t count);

/// Sets it for the calling thread while it lives.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(std::uint32_t count);
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;
  ~IntraOpThreads();

 private:
  std::uint32_t before_ = 1;
};

}  // namespace xpipe::executor::nn
