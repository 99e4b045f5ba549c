#include "gpu-worker/cuda/dispatch.h"

#include <algorithm>

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/dispatch_small.cuh"
#include "gpu-worker/cuda/launch.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kSmallThreads = 256;
constexpr uint32_t kPlanThreads = 1024;
constexpr uint32_t kPairThreads = 256;
constexpr uint32_t kFetchBlocksMax = 64;          // of a warp
constexpr uint64_t kFetchBlockBytes = 64 * 1024;  // at least worth a block
static_assert(kDispatchSmallPairs <= kSmallThreads, "a thread per pair");
static_assert(kExpertsMax <= kPlanThreads, "a thread per expert");

__global__ void __launch_bounds__(kSmallThreads) dispatch_small_kernel(DispatchArgs args) {
  __shared__ DispatchShared shared;
  let_next_kernel_begin();
  await_earlier_kernels();
  dispatch_small(args, shared);
}

// Many pairs, in steps: how many each expert has; ...
__global__ void count_pairs_kernel(DispatchArgs args) {
  const uint32_t pair = blockIdx.x * blockDim.x + threadIdx.x;
  if (pair < args.rows * args.top_k) atomicAdd(args.scratch.counts + args.ids[pair], 1u);
}

// Sum of the values of all threads before this one; `total` of all. By every thread of the block.
__device__ uint64_t exclusive_sum(uint64_t value, uint64_t* warps, uint64_t& total) {
  uint64_t sum = value;
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const uint64_t below = __shfl_up_sync(kAllLanes, sum, step);
    if (lane_index() >= step) sum += below;
  }
  if (lane_index() == kWarp - 1) warps[warp_index()] = sum;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (uint32_t warp = 0; warp < kPlanThreads / kWarp; ++warp) {
    if (warp < warp_index()) before += warps[warp];
    total += warps[warp];
  }
  __syncthreads();
  return before + sum - value;
}

// ... where those of each begin, target by target; ...
__global__ void __launch_bounds__(kPlanThreads) plan_pairs_kernel(DispatchArgs args) {
  __shared__ uint64_t warps[kPlanThreads / kWarp];
  const uint32_t expert = threadIdx.x;
  const uint32_t boards = args.boards == nullptr ? 0 : args.boards->count;
  const uint32_t count = expert < args.experts ? args.scratch.counts[expert] : 0;
  const uint32_t target = count > 0 ? target_of(args, boards, expert) : kMissing;
  for (uint32_t i = 0; i < args.lists.count + boards; ++i) {
    const uint32_t current = i < args.lists.count ? i : kBoards + i - args.lists.count;
    uint64_t total = 0;
    // Groups above, pairs below.
    const uint64_t place = exclusive_sum(target == current ? uint64_t{1} << 32 | count : 0, warps, total);
    if (target == current) {
      args.scratch.cursors[expert] = static_cast<uint32_t>(place);
      if (current < kBoards)
        write_group(args, current, static_cast<uint32_t>(place >> 32), expert, static_cast<uint32_t>(place),
                    count);
    }
    if (expert != 0) continue;
    if (current < kBoards) {
      args.lists.counts[current] = {.groups = static_cast<uint32_t>(total >> 32),
                                    .pairs = static_cast<uint32_t>(total)};
    } else {
      args.board_pairs[current - kBoards] = static_cast<uint32_t>(total);
    }
  }
}

// ... each pair to its place, in any order within its expert: no result depends on it; ...
__global__ void place_pairs_kernel(DispatchArgs args) {
  const uint32_t pair = blockIdx.x * blockDim.x + threadIdx.x;
  if (pair >= args.rows * args.top_k) return;
  const uint32_t expert = args.ids[pair];
  const uint32_t target = target_of(args, args.boards == nullptr ? 0 : args.boards->count, expert);
  write_pair(args, target, atomicAdd(args.scratch.cursors + expert, 1u), pair, expert);
}

// ... the rows that a board needs, a block per row; ...
__global__ void write_rows_kernel(DispatchArgs args) {
  const uint32_t row = blockIdx.x;
  for (uint32_t board = 0; board < args.boards->count; ++board) {
    bool wanted = false;
    for (uint32_t k = 0; k < args.top_k; ++k)
      wanted =
          wanted || target_of(args, args.boards->count, args.ids[row * args.top_k + k]) == kBoards + board;
    if (wanted) write_row(args, args.boards->boards[board], row, nullptr);
  }
}

// ... and the bells, when all that is there.
__global__ void ring_kernel(DispatchArgs args) {
  if (threadIdx.x >= args.boards->count) return;
  ring(args, threadIdx.x, args.board_pairs[threadIdx.x], args.tickets->rung[threadIdx.x]);
}

// Whether a board that was asked has not answered yet, as far as the first block has seen.
__device__ bool still_waiting(const AwaitArgs& args) {
  for (uint32_t board = 0; board < args.boards->count; ++board) {
    const uint64_t ticket = args.tickets->awaited[board];
    const volatile uint64_t& answered = args.tickets->answered[board];
    if (ticket != 0 && answered < ticket) return true;
  }
  return false;
}

// One of several that share the spans. Ends when the boards have answered: nobody waits for the rest.
__device__ void fetch_ahead(const AwaitArgs& args, uint32_t fetcher, uint32_t fetchers) {
  constexpr uint64_t kSector = 32, kBetweenLooks = 16;
  const uint64_t step = fetchers * kWarp * kSector;
  for (uint32_t i = 0; i < args.ahead.count; ++i) {
    const WeightsAhead::Span& span = args.ahead.spans[i];
    for (uint64_t at = (fetcher * kWarp + lane_index()) * kSector, turn = 0; at < span.bytes;
         at += step, ++turn) {
      if (turn % kBetweenLooks == 0 && !still_waiting(args)) return;
      prefetch_second_level(span.begin + at);
    }
  }
}

// The first block awaits, the others fetch. Awaiting is not part of the kernel that reads the parts: behind
// an acquire from the system, its loads took 30 us longer on an H200.
__global__ void await_kernel(AwaitArgs args) {
  let_next_kernel_begin();
  await_earlier_kernels();
  if (blockIdx.x > 0) {
    fetch_ahead(args, blockIdx.x - 1, gridDim.x - 1);
    return;
  }
  const uint32_t board = threadIdx.x;
  if (board >= args.boards->count) return;
  const uint64_t ticket = args.tickets->awaited[board];
  if (ticket == 0) return;
  while (load_acquire_system(args.boards->boards[board].done_ticket) < ticket &&
         load_acquire_system(args.stop) == 0) {
    wait_a_little();
  }
  args.tickets->answered[board] = ticket;
  __threadfence_system();
}

}  // namespace

void check_dispatch(const DispatchArgs& args) {
  const uint32_t pairs = args.rows * args.top_k;
  CHECK(args.experts <= kExpertsMax && pairs <= args.lists.pairs_max, "{} experts, {} pairs, room for {}",
        args.experts, pairs, args.lists.pairs_max);
  CHECK(args.lists.count <= kSmallThreads, "{} lists", args.lists.count);
}

void dispatch_experts(const DispatchArgs& args, cudaStream_t stream) {
  check_dispatch(args);
  const uint32_t pairs = args.rows * args.top_k;
  if (pairs <= kDispatchSmallPairs) {
    launch(dispatch_small_kernel, {.grid = 1, .block = kSmallThreads, .early = true}, stream, args);
    return;
  }
  const uint32_t blocks = (pairs + kPairThreads - 1) / kPairThreads;
  cudaMemsetAsync(args.scratch.counts, 0, args.experts * sizeof(uint32_t), stream);
  launch(count_pairs_kernel, {.grid = blocks, .block = kPairThreads}, stream, args);
  launch(plan_pairs_kernel, {.grid = 1, .block = kPlanThreads}, stream, args);
  launch(place_pairs_kernel, {.grid = blocks, .block = kPairThreads}, stream, args);
  if (args.boards == nullptr) return;
  launch(write_rows_kernel, {.grid = args.rows, .block = kPairThreads}, stream, args);
  launch(ring_kernel, {.grid = 1, .block = kWarp}, stream, args);
}

void await_boards(const AwaitArgs& args, cudaStream_t stream) {
  uint64_t ahead = 0;
  for (uint32_t i = 0; i < args.ahead.count; ++i) ahead += args.ahead.spans[i].bytes;
  const auto fetching = static_cast<uint32_t>(
      std::min<uint64_t>((ahead + kFetchBlockBytes - 1) / kFetchBlockBytes, kFetchBlocksMax));
  launch(await_kernel, {.grid = 1 + fetching, .block = kWarp, .early = true}, stream, args);
}

}  // namespace strata::gpu_worker::cuda
