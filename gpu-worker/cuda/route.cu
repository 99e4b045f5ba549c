#include "gpu-worker/cuda/route.h"

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/math.cuh"
#include "gpu-worker/cuda/reductions.cuh"
#include "services/base/check.h"
#include "services/base/limits.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kRouteWarps = 4;
static_assert(kExpertsPerTokenMax <= kWarp, "a lane holds a chosen expert");

// An expert with its probability, in router order: the larger number comes first, equal probabilities have
// the lower id there. All probabilities of a row are NaN if one is; then only the ids count.
__device__ uint64_t router_key(float probability, uint32_t expert) {
  const uint32_t bits = probability == probability ? bits_of_float(probability) : 0;
  return uint64_t{bits} << 32 | (0xffffffffu - expert);
}

__device__ uint32_t count_larger(const uint64_t* keys, uint32_t count, uint64_t key) {
  uint32_t larger = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < count; ++i) larger += keys[i] > key ? 1 : 0;
  return larger;
}

struct RouteShared {
  float values[kExpertsMax];   // exp(logit - largest)
  uint64_t keys[kExpertsMax];  // of all experts
  uint64_t candidates[kExpertsMax];
  uint64_t lane_best[kWarp];
  uint64_t chosen[kWarp];  // in order
  float largest[kRouteWarps];
};

// One warp puts the top_k largest of keys (experts) into `chosen`. Each lane's best key first: the top_k-th
// of these 32 is a bound that at least top_k keys reach, and few others do. Those are ranked by comparing
// each with each.
__device__ void choose_experts(RouteShared& shared, uint32_t experts, uint32_t top_k) {
  uint64_t best = 0;
  for (uint32_t e = lane_index(); e < experts; e += kWarp) best = max(best, shared.keys[e]);
  shared.lane_best[lane_index()] = best;
  __syncwarp();
  const bool is_bound = best != 0 && count_larger(shared.lane_best, kWarp, best) == top_k - 1;
  const int lane = __ffs(static_cast<int>(__ballot_sync(kAllLanes, is_bound))) - 1;
  const uint64_t bound = shared.lane_best[lane];

  uint32_t count = 0;
  for (uint32_t base = 0; base < experts; base += kWarp) {
    const uint32_t e = base + lane_index();
    const uint64_t key = e < experts ? shared.keys[e] : 0;
    const uint32_t lanes = __ballot_sync(kAllLanes, key >= bound);
    if (key >= bound)
      shared.candidates[count + static_cast<uint32_t>(__popc(lanes & ((1u << lane_index()) - 1)))] = key;
    count += static_cast<uint32_t>(__popc(lanes));
  }
  __syncwarp();
  for (uint32_t c = lane_index(); c < count; c += kWarp) {
    const uint64_t key = shared.candidates[c];
    const uint32_t place = count_larger(shared.candidates, count, key);
    if (place < top_k) shared.chosen[place] = key;
  }
  __syncwarp();
}

__global__ void __launch_bounds__(kRouteWarps* kWarp) route_kernel(RouteArgs args) {
  __shared__ RouteShared shared;
  const uint32_t row = blockIdx.x, experts = args.experts, top_k = args.top_k;
  const float* logits = args.logits.data + row * args.logits.stride;
  float largest = -__builtin_inff();
  for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const float logit = logits[e];
    shared.values[e] = logit;
    largest = logit > largest ? logit : largest;
  }
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, s);
    largest = other > largest ? other : largest;
  }
  if (lane_index() == 0) shared.largest[warp_index()] = largest;
  __syncthreads();
  for (uint32_t w = 0; w < kRouteWarps; ++w)
    largest = shared.largest[w] > largest ? shared.largest[w] : largest;
  for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x)
    shared.values[e] = exp_value(shared.values[e] - largest);
  __syncthreads();
  const float total = sum_f32(shared.values, experts);
  for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x)
    shared.keys[e] = router_key(shared.values[e] / total, e);
  __syncthreads();
  if (warp_index() > 0) return;

  choose_experts(shared, experts, top_k);
  if (lane_index() >= top_k) return;
  const uint64_t at = uint64_t{row} * top_k;
  const auto expert_at = [&](uint32_t i) {
    return args.forced_ids != nullptr ? args.forced_ids[at + i]
                                      : 0xffffffffu - static_cast<uint32_t>(shared.chosen[i]);
  };
  const auto probability = [&](uint32_t expert) {
    return total == total ? float_of_bits(static_cast<uint32_t>(shared.keys[expert] >> 32)) : total;
  };
  float sum = 0.0f;
  for (uint32_t i = 0; i < top_k; ++i) sum += probability(expert_at(i));
  const uint32_t expert = expert_at(lane_index());
  args.ids[at + lane_index()] = static_cast<uint16_t>(expert);
  args.weights[at + lane_index()] = probability(expert) / sum;
}

}  // namespace

void route(const RouteArgs& args, cudaStream_t stream) {
  CHECK(args.rows > 0 && args.experts <= kExpertsMax, "{} experts", args.experts);
  CHECK(args.top_k > 0 && args.top_k <= args.experts && args.top_k <= kExpertsPerTokenMax, "{} of {} experts",
        args.top_k, args.experts);
  launch(route_kernel, {.grid = dim3(args.rows), .block = dim3(kRouteWarps * kWarp), .shared_bytes = 0},
         stream, args);
}

}  // namespace strata::gpu_worker::cuda
