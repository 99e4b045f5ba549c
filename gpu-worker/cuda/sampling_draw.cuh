#pragma once
// The parts of sampling that fix which token is drawn: the order of tokens, changes of logits, and the draw
// itself, as in services/model/sampling.cc.

#include "gpu-worker/cuda/radix_select.cuh"
#include "gpu-worker/cuda/sampling.h"

namespace strata::gpu_worker::cuda {

// A token with its logit: the larger key comes first (larger logit; equal ones: lower id). 0: may not be
// chosen (NaN, -infinity).
__device__ inline uint64_t token_key(float logit, uint32_t token) {
  const uint32_t bits = ordered_bits(logit);
  return bits == 0 ? 0 : uint64_t{bits} << 32 | (0xffffffffu - token);
}
// The same of a token that is chosen when there is no other, whatever its logit. Never 0.
__device__ inline uint64_t best_key(float logit, uint32_t token) {
  return uint64_t{ordered_bits(logit)} << 32 | (0xffffffffu - token);
}
__device__ inline int32_t token_of_key(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline float value_of_key(uint64_t key) {
  return key >> 32 == 0 ? -__builtin_inff() : float_of_ordered(static_cast<uint32_t>(key >> 32));
}

__device__ inline float changed_logit(float logit, const LogitChange& change) {
  if (change.repetition != 1.0f) logit = logit > 0 ? logit / change.repetition : logit * change.repetition;
  logit = logit - change.frequency;
  logit = logit - change.presence;
  return logit + change.bias;
}

__device__ inline float candidate_weight(uint64_t key, float largest, float temperature) {
  return exp_value((value_of_key(key) - largest) / temperature);
}

// top_p, min_p and the draw over candidates in order (keys and weights, at least one), by one thread. Sums
// run in double in the candidates' order. `best`: the answer where min_p leaves nothing.
__device__ inline int32_t draw_ordered(const uint64_t* keys, const float* weights, uint32_t count,
                                       const SampleRow& request, int32_t best) {
  if (request.top_p < 1.0f) {
    double total = 0;
    for (uint32_t i = 0; i < count; ++i) total += static_cast<double>(weights[i]);
    const double needed = static_cast<double>(request.top_p) * total;
    double reached = 0;
    for (uint32_t i = 0; i < count; ++i) {
      reached += static_cast<double>(weights[i]);
      if (reached >= needed) {
        count = i + 1;
        break;
      }
    }
  }
  const auto is_dropped = [&](uint32_t i) { return request.min_p > 0.0f && weights[i] < request.min_p; };
  double total = 0;
  uint32_t last = count;  // the last that is kept
  for (uint32_t i = 0; i < count; ++i) {
    if (is_dropped(i)) continue;
    total += static_cast<double>(weights[i]);
    last = i;
  }
  if (last == count) return best;
  const double target = request.random * total;
  double reached = 0;
  for (uint32_t i = 0; i < last; ++i) {
    if (is_dropped(i)) continue;
    reached += static_cast<double>(weights[i]);
    if (reached > target) return token_of_key(keys[i]);
  }
  return token_of_key(keys[last]);
}

}  // namespace strata::gpu_worker::cuda
