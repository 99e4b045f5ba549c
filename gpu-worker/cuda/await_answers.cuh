#pragma once

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/dispatch.h"

namespace strata::gpu_worker::cuda {

// By all threads of a block, at least kExpertWorkersMax of them: what await_boards() waits for. Behind it
// they can read the parts.
__device__ inline void await_answers(const AwaitArgs& args) {
  const uint32_t board = threadIdx.x;
  if (board < args.boards->count) {
    const uint64_t ticket = args.tickets->awaited[board];
    while (ticket != 0 && load_acquire_system(args.boards->boards[board].done_ticket) < ticket &&
           load_acquire_system(args.stop) == 0) {
      wait_a_little();
    }
  }
  __syncthreads();
}

}  // namespace strata::gpu_worker::cuda
