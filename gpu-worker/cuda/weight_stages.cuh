#pragma once
// The weight rows of a block, one a warp, of types in blocks of at least 32, on their way through shared
// memory: chunk by chunk as they lie in the file, kStages chunks at a time, with the sums of their products.
// Thread t of a warp has the lanes 2 t and 2 t + 1 of its row.

#include <algorithm>

#include "gpu-worker/cuda/products_f32_parts.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kStages = 4;
inline constexpr uint32_t kChunkStep = 256;  // values: whole blocks of every type, whole turns of the lanes
inline constexpr uint32_t kTargetBlocks = 132;  // about one a multiprocessor, if there are rows enough

inline uint32_t shared_bytes(const StageShape& shape) {
  return kStages * shape.stage_bytes() + shape.rows_per_block * shape.converted_bytes;
}

// As few steps of kChunkStep as put a whole row into kStages chunks, or as many as `room` bytes of shared
// memory take. tokens: rows of activations that are staged beside the weights. False: there is no room.
inline bool choose_shape(FloatJob& job, uint32_t rows, uint32_t tokens, uint32_t room) {
  const DeviceMatrix& matrix = job.product.matrix;
  StageShape& shape = job.shape;
  shape.converted_bytes = kConverted * sizeof(float);
  for (shape.rows_per_block = rows; shape.rows_per_block > 0; shape.rows_per_block /= 2) {
    for (uint32_t steps = (matrix.cols + kStages * kChunkStep - 1) / (kStages * kChunkStep); steps > 0;
         --steps) {
      shape.chunk = steps * kChunkStep;
      shape.weight_bytes = (job.weight_bytes(shape.chunk) + 15 + 15) / 16 * 16;
      shape.activation_bytes = tokens * shape.chunk * sizeof(float);
      if (shared_bytes(shape) <= room) return true;
    }
  }
  return false;
}

// Weight rows that a block should have of `rows` in all, with one warp a row.
inline uint32_t rows_per_block(uint64_t rows, uint32_t warps) {
  return static_cast<uint32_t>(std::clamp<uint64_t>((rows + kTargetBlocks - 1) / kTargetBlocks, 1, warps));
}

// Gives every job its blocks; the number of all.
inline uint32_t assign_blocks(FloatJobs& jobs) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    FloatJob& job = jobs.jobs[i];
    job.first_block = blocks;
    blocks += (job.product.matrix.rows + job.shape.rows_per_block - 1) / job.shape.rows_per_block;
  }
  return blocks;
}

struct WeightStages {
  const FloatJob& job;
  std::byte* shared;   // shared_bytes(job.shape)
  uint32_t row, rows;  // of the block

  __device__ WeightStages(const FloatJob& job_in, uint32_t block, std::byte* shared_in)
      : job(job_in),
        shared(shared_in),
        row((block - job_in.first_block) * job_in.shape.rows_per_block),
        rows(min(job_in.shape.rows_per_block, job_in.product.matrix.rows - row)) {}

  __device__ uint32_t chunks() const {
    return (job.product.matrix.cols + job.shape.chunk - 1) / job.shape.chunk;
  }
  __device__ uint32_t first(uint32_t chunk) const { return chunk * job.shape.chunk; }
  __device__ uint32_t count(uint32_t chunk) const {
    return min(job.shape.chunk, job.product.matrix.cols - first(chunk));
  }
  __device__ std::byte* stage(uint32_t chunk) const {
    return shared + chunk % kStages * job.shape.stage_bytes();
  }
  // Weights are copied from the last multiple of 16 bytes before them.
  __device__ const std::byte* weights(uint32_t r, uint32_t chunk) const {
    const DeviceMatrix& matrix = job.product.matrix;
    return matrix.data + (row + r) * matrix.row_bytes + job.weight_bytes(first(chunk));
  }
  __device__ static uint32_t misalignment(const std::byte* p) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) & 15);
  }

  // By all threads of the block.
  __device__ void fetch_weights(uint32_t chunk) const {
    std::byte* to = stage(chunk) + job.shape.activation_bytes;
    const uint32_t pieces = job.shape.weight_bytes / 16, bytes = job.weight_bytes(count(chunk));
    for (uint32_t i = threadIdx.x; i < rows * pieces; i += blockDim.x) {
      const uint32_t r = i / pieces, at = i % pieces * 16;
      const std::byte* from = weights(r, chunk);
      const uint32_t before = misalignment(from);
      if (at < before + bytes) copy16_async(to + r * job.shape.weight_bytes + at, from - before + at);
    }
  }

  // Adds a chunk to the sums of the warp's row: activations of kTokens rows, `stride` floats apart.
  template <int kTokens>
  __device__ void accumulate(uint32_t chunk, const float* activations, uint32_t stride,
                             float (&sums)[kTokens][2]) const {
    const uint32_t r = warp_index(), values = count(chunk);
    const std::byte* stored = stage(chunk) + job.shape.activation_bytes + r * job.shape.weight_bytes +
                              misalignment(weights(r, chunk));
    const auto* raw = reinterpret_cast<const uint8_t*>(stored);
    // The warp turns a stretch into floats first, one unit a thread.
    auto* converted = reinterpret_cast<float*>(shared + kStages * job.shape.stage_bytes() +
                                               warp_index() * job.shape.converted_bytes);
    for (uint32_t at = 0; at < values; at += kConverted) {
      const uint32_t here = min(kConverted, values - at), unit = lane_index();
      if (unit * kUnitValues < here) {
        dequantize_unit(job.product.matrix.type, raw, at / kUnitValues + unit, kUnitValues,
                        converted + unit * kUnitValues, unit);
      }
      __syncwarp();
      add({converted}, activations + at, stride, here, sums);
      __syncwarp();
    }
  }

 private:
  // A whole number of units: every value has its partner.
  template <int kTokens>
  __device__ static void add(SwizzledReader reader, const float* activations, uint32_t stride,
                             uint32_t values, float (&sums)[kTokens][2]) {
#pragma unroll 4
    for (uint32_t i = 2 * lane_index(); i < values; i += kSumLanes) {
      const float2 w = reader.pair(i);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float2 v = *reinterpret_cast<const float2*>(activations + t * stride + i);
        sums[t][0] = fmaf(w.x, v.x, sums[t][0]);
        sums[t][1] = fmaf(w.y, v.y, sums[t][1]);
      }
    }
  }
};

}  // namespace strata::gpu_worker::cuda
