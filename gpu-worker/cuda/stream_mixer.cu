#include "gpu-worker/cuda/stream_mixer.h"

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stream_mixer_down.h"
#include "gpu-worker/cuda/stream_mixer_mix.cuh"
#include "gpu-worker/cuda/stream_mixer_up.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMixThreads = 128;  // times 4 columns: a fifth of a row of the real model
constexpr uint32_t kAtOnce = 5;        // values of a thread that are under way together: 2560 are two turns

// Block (C, rows): one stream of one row. Adds what is pending, if anything, and leaves the stream's RMS norm
// in `normed` (nullptr: not wanted). The sum takes one warp; it reads the values from shared memory.
__global__ void __launch_bounds__(kThreads)
    add_and_norm_kernel(PendingAdd pending, float* streams, const float* norm, float eps, uint32_t hidden,
                        float* normed_rows) {
  __shared__ float scale;
  float* values = dynamic_shared<float>();
  const uint32_t stream = blockIdx.x;
  const uint64_t row = blockIdx.y, at = (row * gridDim.x + stream) * hidden;
  float* x = streams + at;
  const float* y = pending.output == nullptr ? nullptr : pending.output + row * hidden;
  const float inject = y == nullptr ? 0.0f : pending.inject[row * gridDim.x + stream];
  for (uint32_t first = threadIdx.x; first < hidden; first += kAtOnce * kThreads) {
    float old[kAtOnce], added[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t j = first + i * kThreads;
      old[i] = j < hidden ? x[j] : 0.0f;
      added[i] = y != nullptr && j < hidden ? y[j] : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t j = first + i * kThreads;
      if (j >= hidden) continue;
      const float value = y == nullptr ? old[i] : fmaf(inject, added[i], old[i]);
      if (y != nullptr) x[j] = value;
      if (normed_rows != nullptr) values[j] = value;
    }
  }
  if (normed_rows == nullptr) return;  // every thread
  __syncthreads();
  if (warp_index() == 0) {
    const float sum = sum_squares_f32(values, hidden);
    if (lane_index() == 0) scale = rms_scale(sum, hidden, eps);
  }
  __syncthreads();
  const float* g = norm + uint64_t{stream} * hidden;
  for (uint32_t j = threadIdx.x; j < hidden; j += kThreads)
    normed_rows[at + j] = normed(values[j], scale, g[j]);
}

template <int kValues>
__device__ inline MixValues<kValues> values_at(const float* from) {
  if constexpr (kValues == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    return {{v.x, v.y, v.z, v.w}};
  } else {
    return {{*from}};
  }
}

// Block (columns / kMixThreads / kValues, rows): a[j] from the masks (rows, C*H) before their sigmoid.
template <int kValues>
__global__ void __launch_bounds__(kMixThreads)
    mix_kernel(MixArgs args, const float* masks, const float* normed) {
  const uint32_t j = (blockIdx.x * kMixThreads + threadIdx.x) * kValues;
  const uint64_t row = blockIdx.y, first = row * args.streams * args.hidden + j;
  mix_columns<kValues>(
      args, row, j, [&](uint32_t c) { return values_at<kValues>(masks + first + uint64_t{c} * args.hidden); },
      [&](uint32_t c) { return values_at<kValues>(normed + first + uint64_t{c} * args.hidden); });
}

void mix_streams(const MixArgs& args, const StreamScratch& scratch, uint32_t rows, cudaStream_t stream) {
  const auto in_fours = [](const float* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0; };
  const auto with = [&](auto kernel, uint32_t values) {
    const uint32_t columns = kMixThreads * values;
    launch(kernel, {.grid = dim3((args.hidden + columns - 1) / columns, rows), .block = kMixThreads}, stream,
           args, static_cast<const float*>(scratch.mask), static_cast<const float*>(scratch.normed));
  };
  if (args.hidden % 4 == 0 && in_fours(scratch.mask) && in_fours(scratch.normed) && in_fours(args.out)) {
    with(mix_kernel<4>, 4);
  } else {
    with(mix_kernel<1>, 1);
  }
}

// The first half in two launches, for any shape: low, inject and the normed streams.
void add_norm_and_down(const StreamReadArgs& args, cudaStream_t stream) {
  const StreamMixer& mixer = args.mixer;
  const uint32_t rank = mixer.down.rows;
  launch(add_and_norm_kernel,
         {.grid = dim3(mixer.streams, args.rows),
          .block = kThreads,
          .shared_bytes = mixer.hidden * sizeof(float)},
         stream, args.pending, args.streams, mixer.norm, mixer.eps, mixer.hidden, args.scratch.normed);
  const FinishedJob products[] = {
      {.product = {.matrix = mixer.down, .out = args.scratch.low, .out_stride = rank},
       .finish = Finish::kLow},
      {.product = {.matrix = mixer.inject, .out = args.inject, .out_stride = mixer.streams},
       .finish = Finish::kInject}};
  multiply_f32(std::span(products, mixer.inject.rows > 0 ? 2 : 1), static_cast<float>(mixer.streams),
               {args.scratch.normed, uint64_t{mixer.streams} * mixer.hidden}, args.rows, stream,
               args.scratch.products);
}

}  // namespace

void add_to_streams(const StreamAddArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  CHECK(args.pending.output != nullptr, "nothing to add");
  launch(add_and_norm_kernel, {.grid = dim3(args.streams_count, args.rows), .block = kThreads}, stream,
         args.pending, args.streams, static_cast<const float*>(nullptr), 0.0f, args.hidden,
         static_cast<float*>(nullptr));
}

void read_streams(const StreamReadArgs& args, cudaStream_t stream) {
  const StreamMixer& mixer = args.mixer;
  const uint32_t wide = mixer.streams * mixer.hidden, rank = mixer.down.rows;
  if (args.rows == 0) return;
  CHECK(mixer.down.cols == wide && mixer.up.rows == wide && mixer.up.cols == rank,
        "{} x {} and {} x {}, {} wide", rank, mixer.down.cols, mixer.up.rows, mixer.up.cols, wide);
  CHECK(mixer.inject.rows == 0 || (args.inject != nullptr && args.inject != args.pending.inject));
  CHECK(args.input_q8.data == nullptr || (mixer.hidden % kWarp == 0 && args.input_q8.cols == mixer.hidden));

  const MixArgs mix = {
      .streams = mixer.streams, .hidden = mixer.hidden, .out = args.input, .q8 = args.input_q8};
  UpAndMixArgs up = {.up = mixer.up,
                     .low = args.scratch.low,
                     .inputs = {.normed = args.scratch.normed},
                     .mix = mix,
                     .rows = args.rows};
  if (can_up_and_mix(mixer.up, mixer.streams, args.rows)) {
    float* scales = args.scratch.normed;  // the normed streams themselves are not written then
    if (norm_and_down(args, scales, stream)) {
      up.inputs = {.streams = args.streams, .pending = args.pending, .scales = scales, .norm = mixer.norm};
    } else {
      add_norm_and_down(args, stream);
    }
    up_and_mix(up, stream);
    return;
  }
  add_norm_and_down(args, stream);
  const ProductJob product = {.matrix = mixer.up, .out = args.scratch.mask, .out_stride = wide};
  multiply_f32(std::span(&product, 1), {args.scratch.low, rank}, args.rows, stream, args.scratch.products);
  mix_streams(mix, args.scratch, args.rows, stream);
}

namespace {
__global__ void gather_kernel(StreamGatherArgs args) {
  const float* from = args.from + uint64_t{args.chosen[blockIdx.x]} * args.stream_dim;
  float* to = args.to + uint64_t{blockIdx.x} * args.stream_dim;
  for (uint32_t i = threadIdx.x; i < args.stream_dim; i += blockDim.x) to[i] = from[i];
}
}  // namespace

void gather_streams(const StreamGatherArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  launch(gather_kernel, {.grid = args.count, .block = 512}, stream, args);
}

}  // namespace strata::gpu_worker::cuda
