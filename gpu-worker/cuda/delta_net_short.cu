// A few rows a sequence (decode, drafts): everything in one launch, a block per sequence and value head and a
// thread per column of its state. A row is one chain of about 2 * dim dependent fma (1100 cycles for 128);
// the state's loads are under way before the convolution begins.

#include "gpu-worker/cuda/delta_net_parts.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/prefetch.cuh"

namespace strata::gpu_worker::cuda {
namespace {

// Moves the convolution's history on. The channels of a value head are this block's own; those of its key
// head are read by several blocks, and the last one to have read them writes.
__device__ void append_history(const DeltaNetArgs& args, const SegmentInfo& segment, uint32_t head,
                               bool last_reader) {
  const uint32_t key_head = head % args.key_heads;
  for (uint32_t j = threadIdx.x; j < args.dim; j += blockDim.x) {
    channel_inputs(args, segment, (2 * args.key_heads + head) * args.dim + j).append(segment.row_count);
    if (!last_reader) continue;
    channel_inputs(args, segment, key_head * args.dim + j).append(segment.row_count);
    channel_inputs(args, segment, (args.key_heads + key_head) * args.dim + j).append(segment.row_count);
  }
}

// Block (segments * value_heads), a thread per column (dim rounded up to whole warps).
// Dynamic shared memory: raw q, raw k, q, k, out, each (dim rounded up to 4).
template <class Column>
__global__ void __launch_bounds__(1024 / (sizeof(Column) > 64 ? 8 : 1))
    short_kernel(DeltaNetArgs args, bool quantize) {
  __shared__ uint32_t arrived;
  const uint32_t dim = args.dim, padded = (dim + 3) / 4 * 4;
  float* raw_q = dynamic_shared<float>();
  float* raw_k = raw_q + padded;
  float* q = raw_k + padded;
  float* k = q + padded;
  float* outs = k + padded;

  const uint32_t segment_index = blockIdx.x / args.value_heads, head = blockIdx.x % args.value_heads;
  const SegmentInfo segment = args.window.segments[segment_index];
  const uint32_t key_head = head % args.key_heads;
  const uint32_t j = threadIdx.x;
  const bool has_column = j < dim;
  const uint32_t at = has_column ? j : 0;  // threads without a column shadow the first one and store nothing

  float* stored = args.state + segment.sequence * args.state_stride + uint64_t{head} * dim * dim + at;
  Column column(stored, dim);
  prefetch_share(args.next);
  const uint32_t channels[3] = {key_head * dim + at, (args.key_heads + key_head) * dim + at,
                                (2 * args.key_heads + head) * dim + at};
  const ChannelInputs query = channel_inputs(args, segment, channels[0]);
  const ChannelInputs key = channel_inputs(args, segment, channels[1]);
  const ChannelInputs value = channel_inputs(args, segment, channels[2]);

  for (uint32_t index = 0; index < segment.row_count; ++index) {
    const uint64_t row = segment.row_begin + index;
    const float alpha = args.alpha.data[row * args.alpha.stride + head];
    const float beta = sigmoid_value(args.beta.data[row * args.beta.stride + head]);
    const float gate = args.gate.data[row * args.gate.stride + uint64_t{head} * dim + at];
    const float raw_query =
        query.convolved(index, args.conv + uint64_t{channels[0]} * args.taps, args.taps, 1);
    const float raw_key = key.convolved(index, args.conv + uint64_t{channels[1]} * args.taps, args.taps, 1);
    const float v = value.convolved(index, args.conv + uint64_t{channels[2]} * args.taps, args.taps, 1);
    if (has_column) {
      raw_q[j] = raw_query;
      raw_k[j] = raw_key;
    }
    __syncthreads();
    if (index + 1 == segment.row_count && threadIdx.x == 0) {
      // Every thread of the block has read what it needs of the history.
      __threadfence();
      arrived = atomicAdd(&args.arrivals[segment_index * args.key_heads + key_head], 1u) + 1;
    }
    const float q_scale = head_scale(sum_squares_f32(raw_q, dim), dim, true);
    const float k_scale = head_scale(sum_squares_f32(raw_k, dim), dim, false);
    if (has_column) {
      q[j] = raw_query * q_scale;
      k[j] = raw_key * k_scale;
    }
    const float decay = decay_of(args, head, alpha);
    __syncthreads();
    const float out = has_column ? column.step(q, k, v, decay, beta) : 0.0f;
    if (has_column) outs[j] = out;
    __syncthreads();
    const float result = gated_output(args, out, sum_squares_f32(outs, dim), at, gate);
    const uint64_t first = uint64_t{head} * dim;
    if (has_column) args.heads[row * args.value_heads * dim + first + j] = result;
    if (quantize) {
      quantize_block(result, args.heads_q8.data + row * args.heads_q8.stride, args.heads_q8.cols,
                     static_cast<uint32_t>(first + j) / kWarp);
    }
  }

  if (has_column) column.store(stored);
  const bool last_reader = arrived == args.value_heads / args.key_heads;
  append_history(args, segment, head, last_reader);
  if (last_reader && threadIdx.x == 0) args.arrivals[segment_index * args.key_heads + key_head] = 0;
}

template <class Column>
void launch_short(const DeltaNetArgs& args, bool quantize, cudaStream_t stream) {
  const uint32_t padded = (args.dim + 3) / 4 * 4;
  launch(short_kernel<Column>,
         {.grid = args.window.segment_count * args.value_heads,
          .block = (args.dim + kWarp - 1) / kWarp * kWarp,
          .shared_bytes = 5 * sizeof(float) * padded},
         stream, args, quantize);
}

}  // namespace

void delta_net_short(const DeltaNetArgs& args, cudaStream_t stream) {
  // Blocks of 32 within a head are quantized on the way.
  const bool quantize = args.heads_q8.data != nullptr && args.dim % kWarp == 0;
  switch (args.dim) {
    case 32:
      launch_short<RegisterColumn<32>>(args, quantize, stream);
      break;
    case 64:
      launch_short<RegisterColumn<64>>(args, quantize, stream);
      break;
    case 128:
      launch_short<RegisterColumn<128>>(args, quantize, stream);
      break;
    default:
      launch_short<MemoryColumn>(args, quantize, stream);
      break;
  }
}

}  // namespace strata::gpu_worker::cuda
