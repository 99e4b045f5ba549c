#pragma once
// Weights of a row as a thread meets them that has one of the 64 lanes of a sum, or four neighbouring ones:
// for rows in shared memory, of the types that has_direct_reader() names.

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

// What a lane of the sum of w(i) * x[i] comes to.
template <class Lane>
__device__ inline float lane_sum(Lane weights, const float* x, uint32_t lane, uint32_t count) {
  float sum = 0.0f;
#pragma unroll 8
  for (uint32_t i = lane; i < count; i += kSumLanes) sum = fmaf(weights.next(), x[i], sum);
  return sum;
}
__device__ inline float lane_sum(TensorType type, const uint8_t* row, const float* x, uint32_t lane,
                                 uint32_t count) {
  switch (type) {
    case TensorType::kF32:
      return lane_sum(FloatLane<F32>(row, lane), x, lane, count);
    case TensorType::kF16:
      return lane_sum(FloatLane<F16>(row, lane), x, lane, count);
    case TensorType::kBF16:
      return lane_sum(FloatLane<BF16>(row, lane), x, lane, count);
    default:
      return lane_sum(Q8Lane(row, lane), x, lane, count);
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
