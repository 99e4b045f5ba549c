#pragma once
// One unit of a product (docs/numerics.md): 32 weights meet 32 activations, and give one or two terms of the
// row's chain `acc = fma(term.x, term.y, acc)`.

#include "gpu-worker/cuda/formats.cuh"

namespace strata::gpu_worker::cuda {

// What a unit of a format consists of.
template <class F>
struct UnitShape {
  static constexpr bool kHalves = F::kScaleGroup == 16 || F::kFactorPer16;  // two dot products, of 16 values
  static constexpr int kGroups = F::kScaleGroup == 16 ? 2 : 1;
  static constexpr int kFactors = F::kFactorPer16 ? 2 : 1;
  static constexpr int kTerms = F::kFactorPer16 || F::kMinimum ? 2 : 1;
};

template <class F>
struct WeightUnit {
  uint32_t w[8];  // as F::raw gives them, or F::columns
  float factor[UnitShape<F>::kFactors];
  int scale[UnitShape<F>::kGroups];
  float minimum_factor;
  int minimum[UnitShape<F>::kGroups];

  __device__ void load(const uint8_t* block, int k) {
    F::raw(block, k, w);
    load_scales(block, k);
  }
  __device__ void load_columns(const uint8_t* block, int k) {
    F::columns(block, k, w);
    load_scales(block, k);
  }
  __device__ void load_scales(const uint8_t* block, int k) {
    constexpr int kGroups = UnitShape<F>::kGroups;
#pragma unroll
    for (int i = 0; i < UnitShape<F>::kFactors; ++i) factor[i] = F::factor(block, 2 * k + i);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      scale[i] = F::scale(block, kGroups * k + i);
      minimum[i] = F::minimum(block, kGroups * k + i);
    }
    minimum_factor = F::minimum_factor(block);
  }
};

struct ActivationUnit {
  uint32_t q[8];
  float d;
  int sum;

  // Unit `unit` of a stored row (Q8Rows).
  __device__ void load(const std::byte* row, uint32_t unit, uint32_t units) {
    const auto* words = reinterpret_cast<const uint4*>(row) + 2 * unit;
    const uint4 first = __ldg(words), last = __ldg(words + 1);
    q[0] = first.x, q[1] = first.y, q[2] = first.z, q[3] = first.w;
    q[4] = last.x, q[5] = last.y, q[6] = last.z, q[7] = last.w;
    const std::byte* scales = row + 32 * uint64_t{units} + 4 * unit;
    d = __ldg(reinterpret_cast<const float*>(scales));
    sum = __ldg(reinterpret_cast<const int*>(scales + 4 * uint64_t{units}));
  }
  __device__ int first_sum() const {
    int result = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) result = dot4(static_cast<int>(q[i]), 0x01010101, result);
    return result;
  }
};

template <int kFirst>
__device__ inline int dot_half(const uint32_t (&w)[8], const uint32_t (&q)[8], int sum) {
#pragma unroll
  for (int i = kFirst; i < kFirst + 4; ++i) sum = dot4(static_cast<int>(w[i]), static_cast<int>(q[i]), sum);
  return sum;
}

// Conversions of integers are slow. A sum that begins at these bits, those of 1.5 * 2^23, becomes a float by
// a subtraction, exactly, while the sum itself is below 2^22; dot products of 32 bytes are.
inline constexpr int kSumBegin = static_cast<int>(kRoundToIntegerBits);
__device__ inline float float_of_sum(int sum) {
  return float_of_bits(static_cast<uint32_t>(sum)) - kRoundToInteger;
}

// first_sum is x.first_sum() where the format needs it: groups of 16 with an offset or a minimum.
template <class F>
inline constexpr bool kNeedsFirstSum = F::kScaleGroup == 16 && (F::kOffset != 0 || F::kIntegerMinimum);

template <class F>
__device__ inline void make_terms(const WeightUnit<F>& u, const ActivationUnit& x, int first_sum,
                                  float2 (&terms)[UnitShape<F>::kTerms]) {
  if constexpr (F::kFactorPer16) {
    static_assert(F::kOffset == 0);
    terms[0] = {u.factor[0] * x.d, float_of_sum(dot_half<0>(u.w, x.q, kSumBegin))};
    terms[1] = {u.factor[1] * x.d, float_of_sum(dot_half<4>(u.w, x.q, kSumBegin))};
  } else {
    float isum;
    if constexpr (F::kScaleGroup == 16) {
      const int last_sum = x.sum - first_sum;
      isum = static_cast<float>(u.scale[0] * dot_half<0>(u.w, x.q, -F::kOffset * first_sum) +
                                u.scale[1] * dot_half<4>(u.w, x.q, -F::kOffset * last_sum));
    } else if constexpr (F::kScaleGroup == 32) {
      isum =
          static_cast<float>(u.scale[0] * dot_half<4>(u.w, x.q, dot_half<0>(u.w, x.q, -F::kOffset * x.sum)));
    } else {
      isum = float_of_sum(dot_half<4>(u.w, x.q, dot_half<0>(u.w, x.q, kSumBegin - F::kOffset * x.sum)));
    }
    terms[0] = {u.factor[0] * x.d, isum};
    if constexpr (F::kMinimum) {
      int msum = u.minimum[0] * x.sum;
      if constexpr (F::kScaleGroup == 16)
        msum = u.minimum[0] * first_sum + u.minimum[1] * (x.sum - first_sum);
      terms[1] = {u.minimum_factor * x.d, static_cast<float>(msum)};
    }
  }
}

}  // namespace strata::gpu_worker::cuda
