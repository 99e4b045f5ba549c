#pragma once
// Weights of a row as a thread meets them that has one, two or four neighbouring ones of the 64 lanes of a
// sum, of the types that has_direct_reader() names.

#include "gpu-worker/cuda/formats.cuh"
#include "gpu-worker/cuda/reductions.cuh"

namespace strata::gpu_worker::cuda {

// One lane: the weights lane, lane + 64, ...
template <class F>
struct FloatLane {
  const uint8_t* at;
  __device__ FloatLane(const uint8_t* row, uint32_t lane) : at(row + lane * F::kValueBytes) {}
  __device__ float next() {
    const float value = F::one(at);
    at += kSumLanes * F::kValueBytes;
    return value;
  }
};
struct Q8Lane {
  const uint8_t* block;
  uint32_t value;
  __device__ Q8Lane(const uint8_t* row, uint32_t lane)
      : block(row + lane / kWarp * Q8_0::kBlockBytes), value(2 + lane % kWarp) {}
  __device__ float next() {
    const float d = load_half(block), q = static_cast<float>(static_cast<int8_t>(block[value]));
    block += kSumLanes / kWarp * Q8_0::kBlockBytes;
    return d * q;
  }
};

// Two lanes: the weights 2 t and 2 t + 1 of every 64, for thread t of a warp. next() is never asked for one
// behind the row's end.
template <class F>
struct FloatPairs {
  const uint8_t* at;
  __device__ explicit FloatPairs(const uint8_t* row) : at(row + 2 * lane_index() * F::kValueBytes) {}
  __device__ float2 next() {
    const float2 pair = {F::one(at), F::one(at + F::kValueBytes)};
    at += kSumLanes * F::kValueBytes;
    return pair;
  }
  __device__ float one() const { return F::one(at); }
};
struct Q8Pairs {
  const uint8_t* block;
  uint32_t value;
  __device__ explicit Q8Pairs(const uint8_t* row)
      : block(row + 2 * lane_index() / kWarp * Q8_0::kBlockBytes), value(2 + 2 * lane_index() % kWarp) {}
  __device__ float2 next() {
    const float d = load_half(block);
    const auto q = static_cast<int16_t>(load_half_word(block + value));
    block += kSumLanes / kWarp * Q8_0::kBlockBytes;
    return {d * static_cast<float>(static_cast<int8_t>(q)), d * static_cast<float>(q >> 8)};
  }
  __device__ float one() const {
    return load_half(block) * static_cast<float>(static_cast<int8_t>(block[value]));
  }
};

// The sum of w(i) * x[i] by a warp; several reads are under way before the first is used. x aligned to 8.
template <class Pairs>
__device__ inline float dot_of_pairs(Pairs weights, const float* x, uint32_t count) {
  constexpr uint32_t kTurns = 8, kAtOnce = kTurns * kSumLanes;
  float sums[1][2] = {};
  uint32_t i = 2 * lane_index();
  const auto add = [&](float2 w, float2 v) {
    sums[0][0] = fmaf(w.x, v.x, sums[0][0]);
    sums[0][1] = fmaf(w.y, v.y, sums[0][1]);
  };
  for (uint32_t first = 0; first + kAtOnce <= count; first += kAtOnce, i += kAtOnce) {
    float2 w[kTurns], v[kTurns];
#pragma unroll
    for (uint32_t k = 0; k < kTurns; ++k) {
      w[k] = weights.next();
      v[k] = *reinterpret_cast<const float2*>(x + i + k * kSumLanes);
    }
#pragma unroll
    for (uint32_t k = 0; k < kTurns; ++k) add(w[k], v[k]);
  }
  for (; i + 1 < count; i += kSumLanes) add(weights.next(), *reinterpret_cast<const float2*>(x + i));
  if (i < count) sums[0][0] = fmaf(weights.one(), x[i], sums[0][0]);
  return total_of_lane_pairs<1>(sums);
}
__device__ inline float dot_of_row(TensorType type, const uint8_t* row, const float* x, uint32_t count) {
  switch (type) {
    case TensorType::kF32:
      return dot_of_pairs(FloatPairs<F32>(row), x, count);
    case TensorType::kF16:
      return dot_of_pairs(FloatPairs<F16>(row), x, count);
    case TensorType::kBF16:
      return dot_of_pairs(FloatPairs<BF16>(row), x, count);
    default:
      return dot_of_pairs(Q8Pairs(row), x, count);
  }
}

// Four neighbouring weights, i a multiple of 4; and one.
template <class F>
struct FloatQuads {
  __device__ static float one(const uint8_t* row, uint32_t i) { return F::one(row + i * F::kValueBytes); }
  __device__ static float4 four(const uint8_t* row, uint32_t i) {
    return {one(row, i), one(row, i + 1), one(row, i + 2), one(row, i + 3)};
  }
};
struct Q8Quads {
  __device__ static float one(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kWarp * Q8_0::kBlockBytes;
    return load_half(block) * static_cast<float>(static_cast<int8_t>(block[2 + i % kWarp]));
  }
  __device__ static float4 four(const uint8_t* row, uint32_t i) {
    const uint8_t* block = row + i / kWarp * Q8_0::kBlockBytes;
    const float d = load_half(block);
    const auto low = static_cast<int16_t>(load_half_word(block + 2 + i % kWarp)),
               high = static_cast<int16_t>(load_half_word(block + 4 + i % kWarp));
    return {d * static_cast<float>(static_cast<int8_t>(low)), d * static_cast<float>(low >> 8),
            d * static_cast<float>(static_cast<int8_t>(high)), d * static_cast<float>(high >> 8)};
  }
};

inline constexpr uint32_t kQuadThreads =
    kSumLanes / 4;  // that share a row: thread t has lanes 4 t .. 4 t + 3

// The totals of four rows, by half a warp: thread t gets that of row t / 4. Every half of the warp has rows
// of its own.
__device__ inline float total_of_lane_quads(float (&v)[4][4]) {
  const uint32_t t = lane_index() % kQuadThreads;
  // Lanes l and l + 32, then l and l + 16: each time a thread keeps half of its rows and gives the others
  // away.
#pragma unroll
  for (uint32_t rows = 2, mask = kQuadThreads / 2; rows > 0; rows /= 2, mask /= 2) {
    const bool upper = (t & mask) != 0;
#pragma unroll
    for (uint32_t r = 0; r < rows; ++r) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const float keep = upper ? v[r + rows][i] : v[r][i], give = upper ? v[r][i] : v[r + rows][i];
        v[r][i] = keep + __shfl_xor_sync(kAllLanes, give, mask);
      }
    }
  }
#pragma unroll
  for (uint32_t mask = 2; mask > 0; mask /= 2) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) v[0][i] += __shfl_xor_sync(kAllLanes, v[0][i], mask);
  }
  return (v[0][0] + v[0][2]) + (v[0][1] + v[0][3]);
}

}  // namespace strata::gpu_worker::cuda
