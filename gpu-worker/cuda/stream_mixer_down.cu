#include "gpu-worker/cuda/stream_mixer_down.h"

#include <algorithm>

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"
#include "gpu-worker/cuda/weight_lanes.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kVectors = 5;  // groups of four values that a thread has of the streams: 10240 in all
constexpr uint32_t kWideMax = 4 * kVectors * kThreads;
// With every further row the weights are read once more, and every block norms for one row only.
constexpr uint32_t kRowsMax = 2;
constexpr uint32_t kTargetBlocks = 132;  // about one a multiprocessor, if there are rows enough

struct NormArgs {
  const float* streams = nullptr;  // (rows, C, H)
  const float* norm = nullptr;     // (C*H)
  PendingAdd pending;
  uint32_t streams_count = 0, hidden = 0;
  float eps = 0;
  float* scales = nullptr;  // out (rows, C)
};

__device__ inline float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// The row's normed streams in shared memory, complete after the caller's next barrier. What a thread reads
// from memory is under way at once, the gains before earlier kernels have ended.
__device__ inline void norm_streams(const NormArgs& args, uint64_t row, float* values, float* scales) {
  const uint32_t hidden = args.hidden, wide = args.streams_count * hidden;
  float4 x[kVectors], g[kVectors];
  uint32_t at[kVectors], stream[kVectors];
  // Threads beyond the end shadow the last ones: a branch would make each read wait for the one before.
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    at[i] = min(4 * (threadIdx.x + i * kThreads), wide - 4);
    stream[i] = at[i] / hidden;
    g[i] = load4(args.norm + at[i]);
  }
  await_earlier_kernels();
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) x[i] = load4(args.streams + row * wide + at[i]);
  if (args.pending.output != nullptr) {
    float4 y[kVectors];
    float w[kVectors];
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i) {
      y[i] = load4(args.pending.output + row * hidden + (at[i] - stream[i] * hidden));
      w[i] = args.pending.inject[row * args.streams_count + stream[i]];
    }
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i)
      x[i] = {fmaf(w[i], y[i].x, x[i].x), fmaf(w[i], y[i].y, x[i].y), fmaf(w[i], y[i].z, x[i].z),
              fmaf(w[i], y[i].w, x[i].w)};
  }
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) *reinterpret_cast<float4*>(values + at[i]) = x[i];
  __syncthreads();
  for (uint32_t c = warp_index(); c < args.streams_count; c += kThreads / kWarp) {
    const float sum = sum_squares_f32(values + c * hidden, hidden);
    const float scale = rms_scale(sum, hidden, args.eps);
    if (lane_index() != 0) continue;
    scales[c] = scale;
    if (blockIdx.x == 0) args.scales[row * args.streams_count + c] = scale;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    const float scale = scales[stream[i]];
    *reinterpret_cast<float4*>(values + at[i]) = {
        normed(x[i].x, scale, g[i].x), normed(x[i].y, scale, g[i].y), normed(x[i].z, scale, g[i].z),
        normed(x[i].w, scale, g[i].w)};
  }
}

// Rows of a product that a block has: next to each other in memory.
struct DownRows {
  const FloatJob& job;
  uint32_t first, count;

  __device__ DownRows(const FloatJob& job_in, uint32_t rows_per_block)
      : job(job_in),
        first((blockIdx.x - job_in.first_block) * rows_per_block),
        count(min(rows_per_block, job_in.product.matrix.rows - first)) {}
  __device__ const std::byte* stored() const {
    return job.product.matrix.data + first * job.product.matrix.row_bytes;
  }
  // They are copied from the last multiple of 16 bytes before them.
  __device__ uint32_t misalignment() const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(stored()) & 15);
  }
  __device__ void fetch(std::byte* to) const {
    const std::byte* from = stored() - misalignment();
    const auto bytes = static_cast<uint32_t>(misalignment() + count * job.product.matrix.row_bytes);
    for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * kThreads) copy16_async(to + at, from + at);
  }
};

struct DownShape {
  uint32_t wide = 0, streams = 0;
  uint32_t rows[2] = {};                                           // of a block, by job
  __host__ __device__ uint32_t scales_at() const { return wide; }  // in floats
  __host__ __device__ uint32_t weights_at() const { return scales_at() + (streams + 3) / 4 * 4; }
  uint64_t bytes(uint32_t job_rows, uint64_t row_bytes) const {
    return weights_at() * sizeof(float) + (job_rows * row_bytes + 15 + 15) / 16 * 16;
  }
};

// Shared memory: the row's streams, their scales, the weights. Block (row groups of both products, rows); a
// warp has a weight row.
__global__ void __launch_bounds__(kThreads) down_kernel(FloatJobs jobs, NormArgs norm, DownShape shape) {
  let_next_kernel_begin();
  auto* values = dynamic_shared<float>();
  float* scales = values + shape.scales_at();
  auto* weights = reinterpret_cast<std::byte*>(values + shape.weights_at());
  const bool second = jobs.count > 1 && blockIdx.x >= jobs.jobs[1].first_block;
  const DownRows rows(jobs.jobs[second ? 1 : 0], shape.rows[second ? 1 : 0]);
  rows.fetch(weights);
  copies_commit();
  norm_streams(norm, blockIdx.y, values, scales);
  copies_wait<0>();
  __syncthreads();
  if (warp_index() >= rows.count) return;  // the whole warp
  const DeviceMatrix& matrix = rows.job.product.matrix;
  const auto* stored =
      reinterpret_cast<const uint8_t*>(weights + rows.misalignment() + warp_index() * matrix.row_bytes);
  const float total = dot_of_row(matrix.type, stored, values, matrix.cols);
  if (lane_index() == 0) store_product(jobs, rows.job, blockIdx.y, rows.first + warp_index(), total);
}

}  // namespace

bool norm_and_down(const StreamReadArgs& args, float* scales, cudaStream_t stream) {
  const StreamMixer& mixer = args.mixer;
  const uint32_t wide = mixer.streams * mixer.hidden, rank = mixer.down.rows;
  if (args.rows > kRowsMax || wide > kWideMax || mixer.hidden % 4 != 0) return false;
  FloatJobs jobs;
  jobs.divisor = static_cast<float>(mixer.streams);
  jobs.jobs[jobs.count++] =
      float_job({.matrix = mixer.down, .out = args.scratch.low, .out_stride = rank}, Finish::kLow);
  if (mixer.inject.rows > 0) {
    jobs.jobs[jobs.count++] =
        float_job({.matrix = mixer.inject, .out = args.inject, .out_stride = mixer.streams}, Finish::kInject);
  }
  DownShape shape{.wide = wide, .streams = mixer.streams};
  uint32_t blocks = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    const DeviceMatrix& matrix = jobs.jobs[i].product.matrix;
    if (!has_direct_reader(matrix.type)) return false;
    uint32_t& rows = shape.rows[i];
    rows = std::clamp((matrix.rows + kTargetBlocks - 1) / kTargetBlocks, 1u, kThreads / kWarp);
    while (rows > 1 && shape.bytes(rows, matrix.row_bytes) > shared_bytes_max()) --rows;
    bytes = std::max(bytes, shape.bytes(rows, matrix.row_bytes));
    jobs.jobs[i].first_block = blocks;
    blocks += (matrix.rows + rows - 1) / rows;
  }
  if (bytes > shared_bytes_max()) return false;
  const NormArgs norm = {.streams = args.streams,
                         .norm = mixer.norm,
                         .pending = args.pending,
                         .streams_count = mixer.streams,
                         .hidden = mixer.hidden,
                         .eps = mixer.eps,
                         .scales = scales};
  launch(down_kernel,
         {.grid = dim3(blocks, args.rows), .block = kThreads, .shared_bytes = bytes, .early = true}, stream,
         jobs, norm, shape);
  return true;
}

}  // namespace strata::gpu_worker::cuda
