#pragma once
// The asynchronous copies of a block's threads. They happen as late as they may, when their thread waits for
// them: bytes that are used without waiting are not there.

#include <cstdint>
#include <vector>

#include "gpu-worker/cuda/emulation/vector_types.h"

namespace strata::gpu_worker::cuda::emulation {

class PendingCopies {
 public:
  void begin_block();
  void add(uint32_t thread, uint4* to, const uint4* from);
  void commit(uint32_t thread);
  // Does all copies but those of the last `pending` commits.
  void wait(uint32_t thread, uint32_t pending);

 private:
  struct Copy {
    uint4* to;
    const uint4* from;
    uint32_t group;
  };
  struct Thread {
    std::vector<Copy> copies;  // not done yet, oldest first
    uint32_t commits = 0;
  };
  Thread& of(uint32_t thread);

  std::vector<Thread> threads_;
};

}  // namespace strata::gpu_worker::cuda::emulation
