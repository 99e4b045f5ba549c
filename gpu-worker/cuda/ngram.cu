#include "gpu-worker/cuda/ngram.h"

#include "gpu-worker/cuda/convolution.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stretches.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr float kGateFloor = 1e-6f;
// Up to this many rows a sequence, a channel's thread goes through them one after the other and moves the
// history on itself.
constexpr uint32_t kShortRows = 8;

// sigmoid( sign(u) * sqrt(max(|u|, 1e-6)) ), sign(0) = 0.
__device__ inline float gate_of(float u) {
  const float size = fabsf(u);
  const float root = sqrtf(size < kGateFloor ? kGateFloor : size);
  return sigmoid_value(u > 0 ? root : u < 0 ? -root : u);  // u is 0 here, or NaN, which stays
}

// Block (C, rows): one stream of one row. Dynamic shared memory: two times H.
__global__ void __launch_bounds__(kThreads) gate_kernel(NgramArgs args) {
  __shared__ float sums[2];
  float* key = dynamic_shared<float>();
  float* query = key + args.hidden;
  const uint32_t stream = blockIdx.x, hidden = args.hidden;
  const uint64_t row = blockIdx.y, at = (row * gridDim.x + stream) * hidden;
  const uint64_t of_stream = uint64_t{stream} * hidden;
  for (uint32_t j = threadIdx.x; j < hidden; j += kThreads) {
    key[j] = args.keys[at + j];
    query[j] = args.streams[at + j];
  }
  __syncthreads();
  if (warp_index() < 2) sums[warp_index()] = sum_squares_f32(warp_index() == 0 ? key : query, hidden);
  __syncthreads();
  const float key_scale = rms_scale(sums[0], hidden, args.eps);
  const float query_scale = rms_scale(sums[1], hidden, args.eps);
  for (uint32_t j = threadIdx.x; j < hidden; j += kThreads) {
    key[j] = normed(key[j], key_scale, args.norm_key[of_stream + j]);
    query[j] = normed(query[j], query_scale, args.norm_query[of_stream + j]);
  }
  __syncthreads();
  if (warp_index() == 0) sums[0] = dot_f32(key, query, hidden);
  __syncthreads();
  const float gate = gate_of(sums[0] / sqrtf(static_cast<float>(hidden)));
  float* gated = key;
  for (uint32_t j = threadIdx.x; j < hidden; j += kThreads) {
    gated[j] = gate * args.values[row * hidden + j];
    args.gated[at + j] = gated[j];
  }
  __syncthreads();
  if (warp_index() == 0) sums[1] = sum_squares_f32(gated, hidden);
  __syncthreads();
  const float scale = rms_scale(sums[1], hidden, args.eps);
  for (uint32_t j = threadIdx.x; j < hidden; j += kThreads)
    args.conv_input[at + j] = normed(gated[j], scale, args.norm_conv[of_stream + j]);
}

__device__ inline ChannelInputs channel_inputs(const NgramArgs& args, const SegmentInfo& segment,
                                               uint32_t channel) {
  const uint32_t width = args.streams_count * args.hidden;
  return {.window = args.conv_input + uint64_t{segment.row_begin} * width + channel,
          .stride = width,
          .history = args.history + segment.sequence * args.history_stride + channel,
          .width = width,
          .history_rows = args.dilation * (args.taps - 1)};
}

// One channel of row `index` of a segment.
__device__ inline void add_channel(const NgramArgs& args, const SegmentInfo& segment,
                                   const ChannelInputs& inputs, uint32_t channel, uint32_t index) {
  const float convolved =
      inputs.convolved(index, args.conv + uint64_t{channel} * args.taps, args.taps, args.dilation);
  const uint64_t at = uint64_t{segment.row_begin + index} * inputs.width + channel;
  const float added = args.gated[at] + convolved;
  args.gated[at] = added;
  args.streams[at] += added;
}

// Block (channels / kThreads, segments): the stretch's rows of a segment, then its history.
__global__ void __launch_bounds__(kThreads) convolve_segment_kernel(NgramArgs args, RowRange stretch) {
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= args.streams_count * args.hidden) return;
  const SegmentInfo segment = part_within(args.window.segments[blockIdx.y], stretch);
  const ChannelInputs inputs = channel_inputs(args, segment, channel);
  for (uint32_t index = 0; index < segment.row_count; ++index)
    add_channel(args, segment, inputs, channel, index);
  inputs.append(segment.row_count);
}

// Block (channels / kThreads, rows).
__global__ void __launch_bounds__(kThreads) convolve_rows_kernel(NgramArgs args) {
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= args.streams_count * args.hidden) return;
  const SegmentInfo segment = args.window.segments[args.window.rows[blockIdx.y].segment];
  add_channel(args, segment, channel_inputs(args, segment, channel), channel, blockIdx.y - segment.row_begin);
}

// Block (channels / kThreads, segments).
__global__ void __launch_bounds__(kThreads) append_kernel(NgramArgs args, RowRange stretch) {
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel >= args.streams_count * args.hidden) return;
  const SegmentInfo segment = part_within(args.window.segments[blockIdx.y], stretch);
  channel_inputs(args, segment, channel).append(segment.row_count);
}

}  // namespace

void ngram_add(const NgramArgs& args, cudaStream_t stream, std::span<const StateCapture> captures) {
  const WindowView& window = args.window;
  if (window.row_count == 0) return;
  CHECK(args.taps > 0 && args.dilation > 0, "{} taps, {} apart", args.taps, args.dilation);
  launch(gate_kernel,
         {.grid = dim3(args.streams_count, window.row_count),
          .block = kThreads,
          .shared_bytes = 2 * args.hidden * sizeof(float)},
         stream, args);
  const uint32_t width = args.streams_count * args.hidden, blocks = (width + kThreads - 1) / kThreads;
  const bool by_segments = window.row_count <= kShortRows * window.segment_count;
  if (!by_segments)
    launch(convolve_rows_kernel, {.grid = dim3(blocks, window.row_count), .block = kThreads}, stream, args);
  for_each_stretch(
      captures, window.row_count,
      [&](RowRange stretch) {
        launch(by_segments ? convolve_segment_kernel : append_kernel,
               {.grid = dim3(blocks, window.segment_count), .block = kThreads}, stream, args, stretch);
      },
      [&](const StateCapture& capture) {
        keep_floats(capture.to->ngram_conv, args.history, args.history_stride,
                    uint64_t{args.dilation} * (args.taps - 1) * width, capture, stream);
      });
}

}  // namespace strata::gpu_worker::cuda
