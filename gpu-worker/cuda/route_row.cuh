#pragma once
// Routing of one row by a block.

#include "gpu-worker/cuda/math.cuh"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/route.h"
#include "services/base/limits.h"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kRouteThreads = 512;  // one row of the real model: an expert a thread
inline constexpr uint32_t kRouteWarps = kRouteThreads / kWarp;
inline constexpr uint32_t kGroup = 16;  // threads; the best keys of groups bound what can be chosen
inline constexpr uint32_t kGroups = kRouteThreads / kGroup;
static_assert(kExpertsPerTokenMax <= kGroups && kGroups == kWarp,
              "a lane holds a group's best, or a chosen expert");
inline constexpr uint32_t kKeys = (kExpertsMax + kRouteThreads - 1) / kRouteThreads;  // of a thread

// An expert with its probability, in router order: the larger number comes first, equal probabilities have
// the lower id there. All probabilities of a row are NaN if one is; then only the ids count.
__device__ inline uint64_t router_key(float probability, uint32_t expert) {
  const uint32_t bits = probability == probability ? bits_of_float(probability) : 0;
  return uint64_t{bits} << 32 | (0xffffffffu - expert);
}

__device__ inline uint32_t count_larger(const uint64_t* keys, uint32_t count, uint64_t key) {
  uint32_t larger = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < count; ++i) larger += keys[i] > key ? 1 : 0;
  return larger;
}

struct RouteShared {
  float values[kExpertsMax];  // exp(logit - largest)
  uint64_t candidates[kExpertsMax];
  uint64_t group_best[kGroups];
  uint64_t chosen[kGroups];  // in order
  uint16_t ids[kGroups];     // of the experts that are used
  float largest[kRouteWarps];
  uint32_t candidate_count;
};

// Puts the top_k largest keys into `chosen`; each thread brings some. The top_k-th of the groups' best keys
// is a bound that at least top_k keys reach, and few others do. Those are ranked by comparing each with each.
__device__ inline void choose_experts(RouteShared& shared, const uint64_t (&keys)[kKeys], uint32_t top_k) {
  uint64_t best = 0;
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) best = max(best, keys[i]);
#pragma unroll
  for (uint32_t s = kGroup / 2; s > 0; s /= 2) best = max(best, __shfl_xor_sync(kAllLanes, best, s));
  if (threadIdx.x % kGroup == 0) shared.group_best[threadIdx.x / kGroup] = best;
  __syncthreads();
  // By every warp for itself.
  best = shared.group_best[lane_index()];
  const bool is_bound = best != 0 && count_larger(shared.group_best, kGroups, best) == top_k - 1;
  const int lane = __ffs(static_cast<int>(__ballot_sync(kAllLanes, is_bound))) - 1;
  // Fewer groups with an expert than are to be chosen: no bound, all experts are ranked.
  const uint64_t bound = lane >= 0 ? shared.group_best[lane] : 1;
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    if (keys[i] >= bound) shared.candidates[atomicAdd(&shared.candidate_count, 1u)] = keys[i];
  }
  __syncthreads();
  const uint32_t count = shared.candidate_count;
  for (uint32_t c = threadIdx.x; c < count; c += kRouteThreads) {
    const uint64_t key = shared.candidates[c];
    const uint32_t place = count_larger(shared.candidates, count, key);
    if (place < top_k) shared.chosen[place] = key;
  }
  __syncthreads();
}

// Routes one row, by a block of kRouteThreads.
__device__ inline void route_row(const RouteArgs& args, uint32_t row, RouteShared& shared) {
  const uint32_t experts = args.experts, top_k = args.top_k;
  const float* logits = args.logits.data + row * args.logits.stride;
  if (threadIdx.x == 0) shared.candidate_count = 0;
  const uint64_t at = uint64_t{row} * top_k;
  const uint32_t k = min(lane_index(), top_k - 1);
  const uint32_t forced = args.forced_ids != nullptr ? args.forced_ids[at + k] : 0;
  float logit[kKeys], largest = -__builtin_inff();
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    const uint32_t e = threadIdx.x + i * kRouteThreads;
    logit[i] = e < experts ? logits[e] : -__builtin_inff();
    largest = logit[i] > largest ? logit[i] : largest;
  }
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, s);
    largest = other > largest ? other : largest;
  }
  if (lane_index() == 0) shared.largest[warp_index()] = largest;
  __syncthreads();
#pragma unroll
  for (uint32_t w = 0; w < kRouteWarps; ++w)
    largest = shared.largest[w] > largest ? shared.largest[w] : largest;
  float value[kKeys];
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    const uint32_t e = threadIdx.x + i * kRouteThreads;
    value[i] = exp_value(logit[i] - largest);
    if (e < experts) shared.values[e] = value[i];
  }
  __syncthreads();
  const float total = sum_f32(shared.values, experts);
  uint64_t keys[kKeys];
#pragma unroll
  for (uint32_t i = 0; i < kKeys; ++i) {
    const uint32_t e = threadIdx.x + i * kRouteThreads;
    keys[i] = e < experts ? router_key(value[i] / total, e) : 0;
  }
  choose_experts(shared, keys, top_k);
  if (warp_index() > 0) return;

  const uint32_t expert =
      args.forced_ids != nullptr ? forced : 0xffffffffu - static_cast<uint32_t>(shared.chosen[k]);
  const float probability = shared.values[expert] / total;
  float sum = 0.0f;
#pragma unroll 8
  for (uint32_t i = 0; i < top_k; ++i) sum += __shfl_sync(kAllLanes, probability, static_cast<int>(i));
  if (lane_index() >= top_k) return;
  shared.ids[lane_index()] = static_cast<uint16_t>(expert);
  args.ids[at + lane_index()] = static_cast<uint16_t>(expert);
  args.weights[at + lane_index()] = probability / sum;
}

}  // namespace strata::gpu_worker::cuda
