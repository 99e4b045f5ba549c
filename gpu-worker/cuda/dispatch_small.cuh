#pragma once
// Who computes which pair, and how a board is asked: for the kernels of dispatch() and for the one that also
// routes.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/dispatch.h"

namespace strata::gpu_worker::cuda {

// Who computes an expert: list number, or kBoards + board.
inline constexpr uint32_t kBoards = 0x10000u;

__device__ inline uint32_t target_of(const DispatchArgs& args, uint32_t boards, uint32_t expert) {
  const uint32_t place = args.places.places[expert];
  if (place == kMissing) return kBoards + expert % boards;
  return place < kStreamed ? 0 : 1 + (place - kStreamed) / args.places.batch;
}

__device__ inline const std::byte* record_of(const ExpertPlaces& places, uint32_t expert) {
  const uint32_t place = places.places[expert];
  return place < kStreamed
             ? places.arena + uint64_t{place} * places.slot_bytes
             : places.staging + uint64_t{(place - kStreamed) % places.staging_slots} * places.slot_bytes;
}

__device__ inline void write_group(const DispatchArgs& args, uint32_t list, uint32_t index, uint32_t expert,
                                   uint32_t first, uint32_t count) {
  HitGroup& group = args.lists.groups[uint64_t{list} * args.lists.groups_max + index];
  group.record = record_of(args.places, expert);
  group.expert = expert;
  group.first = first;
  group.count = count;
}

// Pair `pair` is number `place` of its target.
__device__ inline void write_pair(const DispatchArgs& args, uint32_t target, uint32_t place, uint32_t pair,
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

// One row of activations as boards take it.
struct RowWords {
  const uint32_t* data;
  uint32_t count;
};
__device__ inline RowWords row_words(const DispatchArgs& args, uint32_t row) {
  if (args.activations == shm::ActivationKind::kQ8) {
    return {reinterpret_cast<const uint32_t*>(args.x_q8.data + row * args.x_q8.stride),
            (args.hidden + args.hidden / 4) / 4};
  }
  return {reinterpret_cast<const uint32_t*>(args.x.data + row * args.x.stride), args.hidden};
}

// What a thread of a window of one row asks for before it is known whether a board is asked at all: a read
// from memory takes as long as choosing the experts.
struct DispatchAhead {
  static constexpr uint32_t kWords = 2;  // of the row: all of it in 8 bits, in the real model
  uint32_t words[kWords];
  uint64_t rung;

  __device__ explicit DispatchAhead(const DispatchArgs& args) {
    if (args.boards == nullptr) return;
    const RowWords row = row_words(args, 0);
#pragma unroll
    for (uint32_t k = 0; k < kWords; ++k) {
      const uint32_t i = threadIdx.x + k * blockDim.x;
      words[k] = row.data[min(i, row.count - 1)];
    }
    rung = args.tickets->rung[min(threadIdx.x, kExpertWorkersMax - 1)];
  }
};

// Copies a row to a board, by the threads of a block. `ahead`: of row 0, or null.
__device__ inline void write_row(const DispatchArgs& args, const BoardAddresses& board, uint32_t row,
                                 const DispatchAhead* ahead) {
  const RowWords from = row_words(args, row);
  auto* to = reinterpret_cast<uint32_t*>(board.activations + row * board.activation_row_bytes);
  uint32_t i = threadIdx.x;
  if (ahead != nullptr) {
#pragma unroll
    for (uint32_t k = 0; k < DispatchAhead::kWords; ++k, i += blockDim.x) {
      if (i < from.count) to[i] = ahead->words[k];
    }
  }
  for (; i < from.count; i += blockDim.x) to[i] = from.data[i];
}

// Everything that the request refers to has been written before, by this thread or before a barrier of the
// block: the release makes all of it visible to the system.
__device__ inline void ring(const DispatchArgs& args, uint32_t index, uint32_t pairs, uint64_t rung) {
  args.tickets->awaited[index] = 0;
  if (pairs == 0) return;
  const BoardAddresses& board = args.boards->boards[index];
  const uint64_t ticket = rung + 1;
  args.tickets->rung[index] = ticket;
  board.request->ticket = ticket;
  board.request->layer = args.layer;
  board.request->tokens = args.rows;
  board.request->pair_count = pairs;
  board.request->activations = args.activations;
  board.request->numerics = 0;  // quant::Numerics::kReproducible
  args.tickets->awaited[index] = ticket;
  store_release_system(board.work_seq, static_cast<uint32_t>(ticket));
}

// Few pairs, by a block with a thread per pair at least: each finds its place by comparing with all others.
struct DispatchShared {
  uint32_t expert_of[kDispatchSmallPairs];
  uint32_t target_of_pair[kDispatchSmallPairs];
  bool first_of_expert[kDispatchSmallPairs];
  uint32_t board_pairs[kExpertWorkersMax];
};
__device__ inline void dispatch_small(const DispatchArgs& args, DispatchShared& shared,
                                      const DispatchAhead* ahead = nullptr) {
  auto& [expert_of, target_of_pair, first_of_expert, board_pairs] = shared;
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
      if (wanted) write_row(args, args.boards->boards[board], row, ahead);
    }
  }
  __syncthreads();
  if (threadIdx.x < boards) {
    ring(args, threadIdx.x, board_pairs[threadIdx.x],
         ahead != nullptr ? ahead->rung : args.tickets->rung[threadIdx.x]);
  }
}

// What dispatch() takes for granted.
void check_dispatch(const DispatchArgs& args);

}  // namespace strata::gpu_worker::cuda
