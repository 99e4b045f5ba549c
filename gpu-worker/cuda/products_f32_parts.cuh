#pragma once
// What the kernels of products_f32 share.

#include "gpu-worker/cuda/dequantize.cuh"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/reductions.cuh"

namespace strata::gpu_worker::cuda {

// How a block goes through its weight rows where every row meets few rows of activations
// (weight_stages.cuh).
struct StageShape {
  uint32_t rows_per_block = 1;
  uint32_t chunk = 0;             // values of a row at a time
  uint32_t weight_bytes = 0;      // of a chunk in shared memory, per row
  uint32_t activation_bytes = 0;  // of a chunk's activations, before the weights; 0: they lie elsewhere
  uint32_t converted_bytes = 0;   // room per row for values that are dequantized first

  __host__ __device__ uint32_t stage_bytes() const {
    return activation_bytes + rows_per_block * weight_bytes;
  }
};

// The jobs of a launch; block b belongs to the last job with first_block <= b.
struct FloatJob {
  ProductJob product;
  uint32_t block_values = 1, block_bytes = 0;  // of the matrix's type
  Finish finish = Finish::kNone;
  uint32_t first_block = 0;
  StageShape shape;

  // Of a whole number of blocks.
  __host__ __device__ uint32_t weight_bytes(uint32_t values) const {
    return values / block_values * block_bytes;
  }
};
struct FloatJobs {
  FloatJob jobs[kProductJobsMax];
  uint32_t count = 0;
  float divisor = 1.0f;

  __device__ const FloatJob& of_block(uint32_t block) const {
    uint32_t i = 0;
    while (i + 1 < count && jobs[i + 1].first_block <= block) ++i;
    return jobs[i];
  }
};

// With block_values and block_bytes filled in.
FloatJob float_job(const ProductJob& product, Finish finish);
// Few rows: of the types that has_direct_reader() names, and of the others.
void multiply_f32_lanes(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream);
void multiply_f32_few(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream);
// False, and nothing launched: the scratch memory has not even room for one tile of each operand.
bool multiply_f32_many(FloatJobs jobs, FloatRows x, uint32_t rows, FloatScratch scratch, cudaStream_t stream);

// What a dot product becomes, and its place.
__device__ inline float finished(const FloatJobs& jobs, const FloatJob& job, float total) {
  const float y = total * job.product.matrix.scale;
  if (job.finish == Finish::kLow) return silu_value(y / jobs.divisor);
  if (job.finish == Finish::kInject) return 2.0f * sigmoid_value(y / jobs.divisor);
  return y;
}
__device__ inline void store_product(const FloatJobs& jobs, const FloatJob& job, uint64_t row, uint32_t i,
                                     float total) {
  job.product.out[row * job.product.out_stride + i] = finished(jobs, job, total);
}

// The first `count` floats of a row to shared memory (aligned to 16), by `threads` threads of which this is
// number `thread`. They are there after the copies' wait and a barrier.
__device__ inline void stage_floats(float* to, const float* from, uint32_t count, uint32_t thread,
                                    uint32_t threads) {
  uint32_t copied = 0;
  if ((reinterpret_cast<uintptr_t>(from) & 15) == 0) {
    copied = count / 4 * 4;
    for (uint32_t i = 4 * thread; i < copied; i += 4 * threads) copy16_async(to + i, from + i);
  }
  for (uint32_t i = copied + thread; i < count; i += threads) to[i] = from[i];
}

}  // namespace strata::gpu_worker::cuda
