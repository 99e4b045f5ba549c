// Runs the blocks of a grid one after the other.

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gpu-worker/cuda/emulation/block.h"
#include "gpu-worker/cuda/emulation/kernel_name.h"
#include "gpu-worker/cuda/emulation/launch.h"
#include "gpu-worker/cuda/emulation/pending_copies.h"
#include "gpu-worker/cuda/emulation/stream.h"

constinit thread_local uint3 blockIdx = {};
constinit thread_local dim3 blockDim = {};
constinit thread_local dim3 gridDim = {};

namespace strata::gpu_worker::cuda::emulation {
namespace {

// What this OS thread runs; one of each per thread that ever ran a kernel.
struct Processor {
  BlockRunner runner;
  std::vector<uint4> shared;
  PendingCopies copies;
  void (*kernel)() = nullptr;
};
Processor& processor() {
  static thread_local Processor processor;
  return processor;
}

void run_thread(void* thread) { (*static_cast<const std::function<void()>*>(thread))(); }

void run_grid(const Grid& grid, bool odd, const std::function<void()>& thread) {
  Processor& here = processor();
  here.kernel = grid.kernel;
  gridDim = grid.grid;
  blockDim = grid.block;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        // Not a number, and -1: what is read before it is written shows.
        here.shared.assign((grid.shared_bytes + sizeof(uint4) - 1) / sizeof(uint4),
                           uint4{~0u, ~0u, ~0u, ~0u});
        here.copies.begin_block();
        const bool from_last = ((blockIdx.x + blockIdx.y + blockIdx.z) % 2 != 0) != odd;
        here.runner.run(grid.block.x, from_last, run_thread, const_cast<std::function<void()>*>(&thread));
      }
    }
  }
  here.kernel = nullptr;
}

cudaError_t check_shape(const Grid& grid) {
  const auto whole = [](const dim3& d) { return d.x > 0 && d.y > 0 && d.z > 0; };
  if (!whole(grid.grid) || !whole(grid.block) || grid.grid.y > 65535 || grid.grid.z > 65535) {
    return cudaErrorInvalidValue;
  }
  if (grid.block.x > 1024 || grid.block.y != 1 || grid.block.z != 1) return cudaErrorInvalidValue;
  int shared_max = 0;
  cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  return grid.shared_bytes > static_cast<std::size_t>(shared_max) ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

void launch_grid(const Grid& grid, cudaStream_t stream, std::function<void()> thread) {
  if (const cudaError_t error = check_shape(grid); error != cudaSuccess) {
    remember(error);
    return;
  }
  // Every other launch begins with the other order of threads, so that grids of one block see both.
  static std::atomic<uint32_t> launches{0};
  remember(enqueue(stream, NodeKind::kKernel, [grid, thread = std::move(thread)] {
    run_grid(grid, launches.fetch_add(1, std::memory_order_relaxed) % 2 != 0, thread);
  }));
}

uint64_t meet(uint32_t mask, const char* what, uint64_t in, uint32_t argument, Meeting meeting) {
  return processor().runner.meet(mask, what, in, argument, meeting);
}
uint32_t meet_block(const char* what, uint32_t in) { return processor().runner.meet_block(what, in); }
void wait_a_turn() { processor().runner.wait_a_turn(); }
void* dynamic_shared_memory() { return processor().shared.data(); }

void add_copy(uint4* to, const uint4* from) {
  processor().copies.add(processor().runner.current(), to, from);
}
void commit_copies() { processor().copies.commit(processor().runner.current()); }
void wait_for_copies(uint32_t pending) { processor().copies.wait(processor().runner.current(), pending); }

std::string describe_place() {
  return fmt::format("kernel {}, block ({}, {}, {}), thread {}", kernel_name(processor().kernel), blockIdx.x,
                     blockIdx.y, blockIdx.z, processor().runner.current());
}

void kernel_fault(const char* what) { die(fmt::format("{}: {}", describe_place(), what)); }

}  // namespace strata::gpu_worker::cuda::emulation
