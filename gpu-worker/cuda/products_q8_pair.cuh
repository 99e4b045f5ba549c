#pragma once
// Two neighbouring units of a row (products_q8_unit.cuh) by one thread: blocks that lie at odd multiples of
// 2, scales, and bytes that two units share are then loaded once.

#include "gpu-worker/cuda/products_q8_unit.cuh"

namespace strata::gpu_worker::cuda {

struct ActivationPair {
  ActivationUnit unit[2];
  int first_sum[2];  // what make_terms() takes, where the format needs it

  // Pair `pair` of a stored row, which may lie in any memory. A second unit that does not exist is zeros.
  __device__ void load(const std::byte* row, uint32_t pair, uint32_t units) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t u = 2 * pair + i;
      unit[i] = {};
      if (u >= units) continue;
      const auto* words = reinterpret_cast<const uint4*>(row) + 2 * u;
      const uint4 first = words[0], last = words[1];
      unit[i].q[0] = first.x, unit[i].q[1] = first.y, unit[i].q[2] = first.z, unit[i].q[3] = first.w;
      unit[i].q[4] = last.x, unit[i].q[5] = last.y, unit[i].q[6] = last.z, unit[i].q[7] = last.w;
      const std::byte* scales = row + 32 * uint64_t{units} + 4 * u;
      unit[i].d = *reinterpret_cast<const float*>(scales);
      unit[i].sum = *reinterpret_cast<const int*>(scales + 4 * uint64_t{units});
    }
  }
};

// load(): pair `pair` of the row that begins at `row`; terms(): of unit i, for activations that prepare()
// has seen.
template <class F>
struct WeightPair {
  WeightUnit<F> unit[2];

  __device__ static void prepare(ActivationPair& x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kNeedsFirstSum<F>) x.first_sum[i] = x.unit[i].first_sum();
      if constexpr (F::kHasColumns) turn_columns(x.unit[i].q);
    }
  }
  __device__ void load(const uint8_t* row, uint32_t pair) {
    if constexpr (F::kHasPair) {
      static_assert(F::kUnits == 1 && UnitShape<F>::kTerms == 1 && F::kScaleGroup == 0);
      float d[2];
      F::pair(row + 2 * pair * F::kBlockBytes, unit[0].w, unit[1].w, d);
      unit[0].factor[0] = d[0];
      unit[1].factor[0] = d[1];
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t u = 2 * pair + i;
        const uint8_t* block = row + u / F::kUnits * F::kBlockBytes;
        if constexpr (F::kHasColumns) {
          unit[i].load_columns(block, static_cast<int>(u % F::kUnits));
        } else {
          unit[i].load(block, static_cast<int>(u % F::kUnits));
        }
      }
    }
  }
  __device__ void terms(const ActivationPair& x, int i, float2 (&made)[UnitShape<F>::kTerms]) const {
    make_terms<F>(unit[i], x.unit[i], x.first_sum[i], made);
  }
};

// Both units are bits of the same bytes, and their four scales and minimums one word. The second unit is not
// shifted down: its dot products are four times too large, 16 bits still. first_sum has the sums of both
// halves, 16 bits each.
template <>
struct WeightPair<Q2_K> {
  uint32_t both[8];
  uint32_t scales;
  float d, minimum;

  __device__ static void prepare(ActivationPair& x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = x.unit[i].first_sum();
      x.first_sum[i] = two_halves(first, x.unit[i].sum - first);
    }
  }
  __device__ void load(const uint8_t* row, uint32_t pair) {
    const uint8_t* block = row + pair / 4 * Q2_K::kBlockBytes;
    const uint32_t in_block = pair % 4;
    load_words<4>(block + 16 + 32 * (in_block / 2), both);
#pragma unroll
    for (int j = 0; j < 8; ++j) both[j] = both[j] >> 4 * (in_block % 2) & 0x0f0f0f0fu;
    scales = load_word<4>(block + 4 * in_block);
    const uint32_t factors = load_word<4>(block + 80);
    d = low_half(factors);
    minimum = -high_half(factors);
  }
  __device__ void terms(const ActivationPair& x, int i, float2 (&made)[2]) const {
    uint32_t w[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] = both[j] & (i == 0 ? 0x03030303u : 0x0c0c0c0cu);
    const int dots = two_halves(dot_half<0>(w, x.unit[i].q, 0), dot_half<4>(w, x.unit[i].q, 0));
    const int s = static_cast<int>(scales & 0x0f0f0f0fu), m = static_cast<int>(scales >> 4 & 0x0f0f0f0fu);
    const int isum = i == 0 ? dot2_low(dots, s, kSumBegin) : dot2_high(dots, s, kSumBegin);
    const int msum =
        i == 0 ? dot2_low(x.first_sum[i], m, kSumBegin) : dot2_high(x.first_sum[i], m, kSumBegin);
    made[0] = {d * x.unit[i].d, i == 0 ? float_of_sum(isum) : float_of_sum(isum) * 0.25f};
    made[1] = {minimum * x.unit[i].d, float_of_sum(msum)};
  }

 private:
  __device__ static int two_halves(int low, int high) {
    return static_cast<int>(__byte_perm(static_cast<uint32_t>(low), static_cast<uint32_t>(high), 0x5410));
  }
};

}  // namespace strata::gpu_worker::cuda
