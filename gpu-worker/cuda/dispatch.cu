#include "gpu-worker/cuda/dispatch.h"

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/launch.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kSmallThreads = 256;
constexpr uint32_t kPlanThreads = 1024;
constexpr uint32_t kPairThreads = 256;
static_assert(kDispatchSmallPairs <= kSmallThreads, "a thread per pair");
static_assert(kExpertsMax <= kPlanThreads, "a thread per expert");

// Who computes an expert: list number, or kBoards + board.
constexpr uint32_t kBoards = 0x10000u;

__device__ uint32_t target_of(const DispatchArgs& args, uint32_t boards, uint32_t expert) {
  const uint32_t place = args.places.places[expert];
  if (place == kMissing) return kBoards + expert % boards;
  return place < kStreamed ? 0 : 1 + (place - kStreamed) / args.places.batch;
}

__device__ const std::byte* record_of(const ExpertPlaces& places, uint32_t expert) {
  const uint32_t place = places.places[expert];
  return place < kStreamed
             ? places.arena + uint64_t{place} * places.slot_bytes
             : places.staging + uint64_t{(place - kStreamed) % places.staging_slots} * places.slot_bytes;
}

__device__ void write_group(const DispatchArgs& args, uint32_t list, uint32_t index, uint32_t expert,
                            uint32_t first, uint32_t count) {
  HitGroup& group = args.lists.groups[uint64_t{list} * args.lists.groups_max + index];
  group.record = record_of(args.places, expert);
  group.expert = expert;
  group.first = first;
  group.count = count;
}

// Pair `pair` is number `place` of its target.
__device__ void write_pair(const DispatchArgs& args, uint32_t target, uint32_t place, uint32_t pair,
                           uint32_t expert) {
  if (target < kBoards) {
    args.lists.pairs[uint64_t{target} * args.lists.pairs_max + place] = pair;
    args.remote[pair] = 0;
    return;
  }
  const BoardAddresses& board = args.boards->boards[target - kBoards];
  board.pairs[place] = {.token = static_cast<uint16_t>(pair / args.top_k),
                        .expert = static_cast<uint16_t>(expert)};
  args.remote[pair] = reinterpret_cast<uint64_t>(board.parts + uint64_t{place} * board.part_row_floats);
}

// Copies one row of activations to a board, by the threads of a block.
__device__ void write_row(const DispatchArgs& args, const BoardAddresses& board, uint32_t row) {
  const bool q8 = args.activations == shm::ActivationKind::kQ8;
  const uint32_t words = q8 ? (args.hidden + args.hidden / 4) / 4 : args.hidden;
  const uint32_t* from = q8 ? reinterpret_cast<const uint32_t*>(args.x_q8.data + row * args.x_q8.stride)
                            : reinterpret_cast<const uint32_t*>(args.x.data + row * args.x.stride);
  auto* to = reinterpret_cast<uint32_t*>(board.activations + row * board.activation_row_bytes);
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}

// Everything that the request refers to has been written before, by this thread or before a barrier of the
// block: the release makes all of it visible to the system.
__device__ void ring(const DispatchArgs& args, uint32_t index, uint32_t pairs) {
  args.tickets->awaited[index] = 0;
  if (pairs == 0) return;
  const BoardAddresses& board = args.boards->boards[index];
  const uint64_t ticket = ++args.tickets->rung[index];
  board.request->ticket = ticket;
  board.request->layer = args.layer;
  board.request->tokens = args.rows;
  board.request->pair_count = pairs;
  board.request->activations = args.activations;
  board.request->numerics = 0;  // quant::Numerics::kReproducible
  args.tickets->awaited[index] = ticket;
  store_release_system(board.work_seq, static_cast<uint32_t>(ticket));
}

// Few pairs: a thread per pair finds its place by comparing with all others.
__global__ void dispatch_small_kernel(DispatchArgs args) {
  __shared__ uint32_t expert_of[kDispatchSmallPairs];
  __shared__ uint32_t target_of_pair[kDispatchSmallPairs];
  __shared__ bool first_of_expert[kDispatchSmallPairs];
  __shared__ uint32_t board_pairs[kExpertWorkersMax];
  let_next_kernel_begin();
  await_earlier_kernels();
  const uint32_t pairs = args.rows * args.top_k, pair = threadIdx.x;
  const uint32_t boards = args.boards == nullptr ? 0 : args.boards->count;
  if (pair < kExpertWorkersMax) board_pairs[pair] = 0;
  if (pair < args.lists.count) args.lists.counts[pair] = {};
  if (pair < pairs) {
    expert_of[pair] = args.ids[pair];
    target_of_pair[pair] = target_of(args, boards, expert_of[pair]);
  }
  __syncthreads();
  if (pair < pairs) {
    uint32_t same_before = 0;
    for (uint32_t other = 0; other < pair; ++other)
      same_before += expert_of[other] == expert_of[pair] ? 1 : 0;
    first_of_expert[pair] = same_before == 0;
  }
  __syncthreads();
  if (pair < pairs) {
    const uint32_t expert = expert_of[pair], target = target_of_pair[pair];
    // Of the same target: pairs that come before this one, pairs and experts in all; of the same expert:
    // pairs.
    uint32_t before = 0, all = 0, groups_before = 0, groups = 0, same = 0;
    for (uint32_t other = 0; other < pairs; ++other) {
      if (target_of_pair[other] != target) continue;
      const uint32_t other_expert = expert_of[other];
      ++all;
      groups += first_of_expert[other] ? 1 : 0;
      groups_before += first_of_expert[other] && other_expert < expert ? 1 : 0;
      same += other_expert == expert ? 1 : 0;
      before += other_expert < expert || (other_expert == expert && other < pair) ? 1 : 0;
    }
    write_pair(args, target, before, pair, expert);
    if (first_of_expert[pair] && target < kBoards) {
      write_group(args, target, groups_before, expert, before, same);
      if (groups_before == 0) args.lists.counts[target] = {.groups = groups, .pairs = all};
    }
    if (target >= kBoards) board_pairs[target - kBoards] = all;
  }
  __syncthreads();
  for (uint32_t board = 0; board < boards; ++board) {
    if (board_pairs[board] == 0) continue;
    for (uint32_t row = 0; row < args.rows; ++row) {
      bool wanted = false;
      for (uint32_t k = 0; k < args.top_k; ++k)
        wanted = wanted || target_of_pair[row * args.top_k + k] == kBoards + board;
      if (wanted) write_row(args, args.boards->boards[board], row);
    }
  }
  __syncthreads();
  if (threadIdx.x < boards) ring(args, threadIdx.x, board_pairs[threadIdx.x]);
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
    if (wanted) write_row(args, args.boards->boards[board], row);
  }
}

// ... and the bells, when all that is there.
__global__ void ring_kernel(DispatchArgs args) {
  if (threadIdx.x < args.boards->count) ring(args, threadIdx.x, args.board_pairs[threadIdx.x]);
}

// Not part of the kernel that reads the parts: behind an acquire from the system, its loads took 30 us longer
// on an H200.
__global__ void await_kernel(AwaitArgs args) {
  let_next_kernel_begin();
  await_earlier_kernels();
  const uint32_t board = threadIdx.x;
  if (board >= args.boards->count) return;
  const uint64_t ticket = args.tickets->awaited[board];
  while (ticket != 0 && load_acquire_system(args.boards->boards[board].done_ticket) < ticket &&
         load_acquire_system(args.stop) == 0) {
    wait_a_little();
  }
  __threadfence_system();
}

}  // namespace

void dispatch_experts(const DispatchArgs& args, cudaStream_t stream) {
  const uint32_t pairs = args.rows * args.top_k;
  CHECK(args.experts <= kExpertsMax && pairs <= args.lists.pairs_max, "{} experts, {} pairs, room for {}",
        args.experts, pairs, args.lists.pairs_max);
  CHECK(args.lists.count <= kSmallThreads, "{} lists", args.lists.count);
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
  launch(await_kernel, {.grid = 1, .block = kWarp, .early = true}, stream, args);
}

}  // namespace strata::gpu_worker::cuda
