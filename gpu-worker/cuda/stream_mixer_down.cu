#include "gpu-worker/cuda/stream_mixer_down.h"

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/prefetch.cuh"
#include "gpu-worker/cuda/weight_stages.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kVectors = 5;  // groups of four values that a thread has of the streams: 10240 in all
constexpr uint32_t kWideMax = 4 * kVectors * kThreads;
// With every further row the weights are read once more, and every block norms for one row only.
constexpr uint32_t kRowsMax = 2;
constexpr uint64_t kPrefetchMax = 8u << 20;  // of the up product's weights

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
// from memory is under way at once.
__device__ inline void norm_streams(const NormArgs& args, uint64_t row, float* values, float* scales) {
  const uint32_t hidden = args.hidden, wide = args.streams_count * hidden;
  float4 x[kVectors], g[kVectors];
#pragma unroll
  for (uint32_t i = 0; i < kVectors; ++i) {
    const uint32_t at = 4 * (threadIdx.x + i * kThreads);
    if (at >= wide) continue;
    x[i] = load4(args.streams + row * wide + at);
    g[i] = load4(args.norm + at);
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

// Shared memory: the row's streams, their scales (C rounded up to 4), the weights. Block (row groups of both
// products, rows).
__global__ void __launch_bounds__(kThreads) down_kernel(FloatJobs jobs, NormArgs norm, PrefetchRange next) {
  auto* values = dynamic_shared<float>();
  float* scales = values + norm.streams_count * norm.hidden;
  float* end = scales + (norm.streams_count + 3) / 4 * 4;
  const WeightStages block(jobs.of_block(blockIdx.x), blockIdx.x, reinterpret_cast<std::byte*>(end));
  const uint32_t chunks = block.chunks();
  const auto fetch = [&](uint32_t chunk) {
    if (chunk < chunks) block.fetch_weights(chunk);
    copies_commit();
  };
  for (uint32_t i = 0; i < kStages; ++i) fetch(i);
  prefetch_share(next);
  norm_streams(norm, blockIdx.y, values, scales);
  const bool has_row = warp_index() < block.rows;
  float sums[1][2] = {};
  for (uint32_t i = 0; i < chunks; ++i) {
    copies_wait<kStages - 1>();
    __syncthreads();
    if (has_row) block.accumulate(i, values + block.first(i), 0, sums);
    if (i + kStages < chunks) __syncthreads();  // its place is filled again
    fetch(i + kStages);
  }
  if (!has_row) return;  // the whole warp
  const float total = total_of_lane_pairs<1>(sums);
  if (lane_index() == 0) store_product(jobs, block.job, blockIdx.y, block.row + warp_index(), total);
}

}  // namespace

bool norm_and_down(const StreamReadArgs& args, float* scales, cudaStream_t stream) {
  const StreamMixer& mixer = args.mixer;
  const uint32_t wide = mixer.streams * mixer.hidden, rank = mixer.down.rows;
  if (args.rows > kRowsMax || wide > kWideMax || mixer.hidden % 4 != 0) return false;
  const uint32_t own_bytes = (wide + (mixer.streams + 3) / 4 * 4) * sizeof(float);
  if (own_bytes > shared_bytes_max()) return false;

  FloatJobs jobs;
  jobs.divisor = static_cast<float>(mixer.streams);
  jobs.jobs[jobs.count++] =
      float_job({.matrix = mixer.down, .out = args.scratch.low, .out_stride = rank}, Finish::kLow);
  if (mixer.inject.rows > 0) {
    jobs.jobs[jobs.count++] =
        float_job({.matrix = mixer.inject, .out = args.inject, .out_stride = mixer.streams}, Finish::kInject);
  }
  const uint32_t wanted = rows_per_block(uint64_t{rank + mixer.inject.rows} * args.rows, kThreads / kWarp);
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    if (!choose_shape(jobs.jobs[i], wanted, 0, shared_bytes_max() - own_bytes)) return false;
    bytes = std::max(bytes, shared_bytes(jobs.jobs[i].shape));
  }
  const NormArgs norm = {.streams = args.streams,
                         .norm = mixer.norm,
                         .pending = args.pending,
                         .streams_count = mixer.streams,
                         .hidden = mixer.hidden,
                         .eps = mixer.eps,
                         .scales = scales};
  launch(down_kernel,
         {.grid = dim3(assign_blocks(jobs), args.rows), .block = kThreads, .shared_bytes = own_bytes + bytes},
         stream, jobs, norm, prefetch_of(mixer.up, kPrefetchMax));
  return true;
}

}  // namespace strata::gpu_worker::cuda
