#include "gpu-worker/cuda/stream_mixer_down.h"

#include <algorithm>

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/prefetch.cuh"
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
constexpr uint64_t kPrefetchMax = 8u << 20;  // of the up product's weights
constexpr uint32_t kTargetBlocks = 132;      // about one a multiprocessor, if there are rows enough
constexpr uint32_t kBlockRowsMax = kThreads / kSumLanes;

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
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    const uint32_t at = 4 * (threadIdx.x + i * kThreads);
    if (at < wide) g[i] = load4(args.norm + at);
  }
  await_earlier_kernels();
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    const uint32_t at = 4 * (threadIdx.x + i * kThreads);
    if (at >= wide) continue;
    x[i] = load4(args.streams + row * wide + at);
    if (args.pending.output == nullptr) continue;
    const uint32_t stream = at / hidden;
    const float4 y = load4(args.pending.output + row * hidden + (at - stream * hidden));
    const float w = args.pending.inject[row * args.streams_count + stream];
    x[i] = {fmaf(w, y.x, x[i].x), fmaf(w, y.y, x[i].y), fmaf(w, y.z, x[i].z), fmaf(w, y.w, x[i].w)};
  }
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    const uint32_t at = 4 * (threadIdx.x + i * kThreads);
    if (at < wide) *reinterpret_cast<float4*>(values + at) = x[i];
  }
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
    const uint32_t at = 4 * (threadIdx.x + i * kThreads);
    if (at >= wide) continue;
    const float s = scales[at / hidden];
    *reinterpret_cast<float4*>(values + at) = {normed(x[i].x, s, g[i].x), normed(x[i].y, s, g[i].y),
                                               normed(x[i].z, s, g[i].z), normed(x[i].w, s, g[i].w)};
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
  uint32_t wide = 0, streams = 0, rows_per_block = 0;
  __host__ __device__ uint32_t scales_at() const { return wide; }  // in floats
  __host__ __device__ uint32_t lanes_at() const { return scales_at() + (streams + 3) / 4 * 4; }
  __host__ __device__ uint32_t weights_at() const { return lanes_at() + rows_per_block * kSumLanes; }
  uint64_t bytes(uint64_t row_bytes) const {
    return weights_at() * sizeof(float) + (rows_per_block * row_bytes + 15 + 15) / 16 * 16;
  }
};

// Shared memory: the row's streams, their scales, lanes of the sums, the weights. Block (row groups of both
// products, rows). Two warps share a weight row, a thread has one of its 64 lanes.
__global__ void __launch_bounds__(kThreads)
    down_kernel(FloatJobs jobs, NormArgs norm, DownShape shape, PrefetchRange next) {
  let_next_kernel_begin();
  auto* values = dynamic_shared<float>();
  float* scales = values + shape.scales_at();
  float* lanes = values + shape.lanes_at();
  auto* weights = reinterpret_cast<std::byte*>(values + shape.weights_at());
  const DownRows rows(jobs.of_block(blockIdx.x), shape.rows_per_block);
  rows.fetch(weights);
  copies_commit();
  prefetch_share(next);
  norm_streams(norm, blockIdx.y, values, scales);
  copies_wait<0>();
  __syncthreads();
  const DeviceMatrix& matrix = rows.job.product.matrix;
  const uint32_t row = warp_index() / 2, lane = threadIdx.x % kSumLanes;
  if (row < rows.count) {
    const auto* stored =
        reinterpret_cast<const uint8_t*>(weights + rows.misalignment() + row * matrix.row_bytes);
    lanes[row * kSumLanes + lane] = lane_sum(matrix.type, stored, values, lane, matrix.cols);
  }
  __syncthreads();
  if (warp_index() >= rows.count) return;  // the whole warp
  const float* sums = lanes + warp_index() * kSumLanes + lane_index();
  const float total = total_of_lanes(sums[0], sums[kWarp]);
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
  uint64_t row_bytes = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    const DeviceMatrix& matrix = jobs.jobs[i].product.matrix;
    if (!has_direct_reader(matrix.type)) return false;
    row_bytes = std::max(row_bytes, matrix.row_bytes);
  }
  DownShape shape{
      .wide = wide,
      .streams = mixer.streams,
      .rows_per_block = std::clamp((rank + kTargetBlocks - 1) / kTargetBlocks, 1u, kBlockRowsMax)};
  while (shape.rows_per_block > 1 && shape.bytes(row_bytes) > shared_bytes_max()) --shape.rows_per_block;
  if (shape.bytes(row_bytes) > shared_bytes_max()) return false;
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    jobs.jobs[i].first_block = blocks;
    blocks += (jobs.jobs[i].product.matrix.rows + shape.rows_per_block - 1) / shape.rows_per_block;
  }
  const NormArgs norm = {.streams = args.streams,
                         .norm = mixer.norm,
                         .pending = args.pending,
                         .streams_count = mixer.streams,
                         .hidden = mixer.hidden,
                         .eps = mixer.eps,
                         .scales = scales};
  launch(down_kernel,
         {.grid = dim3(blocks, args.rows),
          .block = kThreads,
          .shared_bytes = shape.bytes(row_bytes),
          .early = true},
         stream, jobs, norm, shape, prefetch_of(mixer.up, kPrefetchMax));
  return true;
}

}  // namespace strata::gpu_worker::cuda
