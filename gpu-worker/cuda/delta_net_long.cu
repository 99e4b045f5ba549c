// Long segments (prompts). What needs no state is done for all rows at once: convolution and norms, and the
// output's norm and gate behind it. In between, each warp carries 32 columns of one head's state through all
// rows of a segment in its registers. Columns are independent, so warps never wait for each other; a row is
// one chain of dim dependent fma because o of a row and m of the next one run side by side.

#include "gpu-worker/cuda/delta_net_parts.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kAhead = 4;  // rows whose q, k, v are on their way

// Block (2 nk + nv, rows): one head of one row, a thread per channel. Queries and keys come out normalized;
// beside the values, alpha becomes the decay and beta the step.
__global__ void prepare_kernel(DeltaNetArgs args) {
  float* raw = dynamic_shared<float>();
  const uint32_t head = blockIdx.x, row = blockIdx.y, j = threadIdx.x;
  const SegmentInfo segment = args.window.segments[args.window.rows[row].segment];
  const uint32_t channel = head * args.dim + j;
  const float value =
      channel_inputs(args, segment, channel)
          .convolved(row - segment.row_begin, args.conv + uint64_t{channel} * args.taps, args.taps, 1);
  float* mixed = args.mixed + uint64_t{row} * channel_count(args) + channel;
  if (head >= 2 * args.key_heads) {
    *mixed = value;
    const uint32_t value_head = head - 2 * args.key_heads;
    if (j == 0) {
      float* alpha = args.alpha.data + row * args.alpha.stride + value_head;
      float* beta = args.beta.data + row * args.beta.stride + value_head;
      *alpha = decay_of(args, value_head, *alpha);
      *beta = sigmoid_value(*beta);
    }
    return;  // the whole block
  }
  raw[j] = value;
  __syncthreads();
  *mixed = value * head_scale(sum_squares_f32(raw, args.dim), args.dim, head < args.key_heads);
}

// A thread per channel, block (channels / threads, segments): after prepare_kernel has read the old history.
__global__ void append_kernel(DeltaNetArgs args) {
  const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= channel_count(args)) return;
  const SegmentInfo segment = args.window.segments[blockIdx.y];
  channel_inputs(args, segment, channel).append(segment.row_count);
}

// What one warp reads of a row: q and k of the head, v of its columns.
template <int kDim>
struct alignas(16) RowInputs {
  float q[kDim], k[kDim], v[kWarp];
};
struct RowFactors {
  float decay, beta;
};

template <int kDim>
struct RowSource {
  const DeltaNetArgs& args;
  const SegmentInfo& segment;
  uint32_t head, first_column;

  // Always commits, so that the count of commits tells which row has arrived.
  __device__ void fetch(uint32_t index, RowInputs<kDim>& to) const {
    if (index < segment.row_count) {
      const uint64_t row = segment.row_begin + index;
      const float* mixed = args.mixed + row * channel_count(args);
      const uint32_t key_head = head % args.key_heads, lane = lane_index();
      copy(to.q, mixed + key_head * kDim, kDim, lane);
      copy(to.k, mixed + (args.key_heads + key_head) * kDim, kDim, lane);
      copy(to.v, mixed + (2 * args.key_heads + head) * kDim + first_column, kWarp, lane);
    }
    copies_commit();
  }
  // Beyond the last row: some row's factors, for nobody.
  __device__ RowFactors factors(uint32_t index) const {
    const uint64_t row = segment.row_begin + min(index, segment.row_count - 1);
    return {args.alpha.data[row * args.alpha.stride + head], args.beta.data[row * args.beta.stride + head]};
  }
  __device__ static void copy(float* to, const float* from, uint32_t count, uint32_t lane) {
    for (uint32_t i = 4 * lane; i < count; i += 4 * kWarp) copy16_async(to + i, from + i);
  }
};

// Block (nv * kDim / 32, segments), one warp. values[i] is the decayed state of the row at hand.
template <int kDim>
__global__ void __launch_bounds__(kWarp) recur_kernel(DeltaNetArgs args) {
  constexpr uint32_t kPieces = kDim / kWarp;
  __shared__ RowInputs<kDim> inputs[kAhead];
  const SegmentInfo segment = args.window.segments[blockIdx.y];
  const uint32_t head = blockIdx.x / kPieces, first_column = blockIdx.x % kPieces * kWarp;
  const uint32_t lane = lane_index();
  const RowSource<kDim> source = {args, segment, head, first_column};
  for (uint32_t i = 0; i + 1 < kAhead; ++i) source.fetch(i, inputs[i]);

  float* stored =
      args.state + segment.sequence * args.state_stride + uint64_t{head} * kDim * kDim + first_column + lane;
  float values[kDim];
#pragma unroll
  for (int i = 0; i < kDim; ++i) values[i] = stored[i * kDim];
  RowFactors now = source.factors(0), next = source.factors(1);
  copies_wait<kAhead - 2>();
  __syncwarp();
  float m = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim; ++i) {
    values[i] = now.decay * values[i];
    m = fmaf(values[i], inputs[0].k[i], m);
  }

  float* out =
      args.heads + (uint64_t{segment.row_begin} * args.value_heads + head) * kDim + first_column + lane;
  const uint64_t out_stride = uint64_t{args.value_heads} * kDim;
  for (uint32_t index = 0; index + 1 < segment.row_count; ++index, out += out_stride) {
    __syncwarp();  // nobody reads the place of row index - 1 any more
    source.fetch(index + kAhead - 1, inputs[(index + kAhead - 1) % kAhead]);
    const RowFactors after = source.factors(index + 2);
    copies_wait<kAhead - 2>();
    __syncwarp();
    const RowInputs<kDim>& row = inputs[index % kAhead];
    const float* next_k = inputs[(index + 1) % kAhead].k;
    const float delta = now.beta * (row.v[lane] - m);
    float sum = 0.0f;
    m = 0.0f;
#pragma unroll
    for (int i = 0; i < kDim; ++i) {
      const float value = fmaf(row.k[i], delta, values[i]);
      sum = fmaf(value, row.q[i], sum);
      values[i] = next.decay * value;
      m = fmaf(values[i], next_k[i], m);
    }
    *out = sum;
    now = next;
    next = after;
  }

  const RowInputs<kDim>& last = inputs[(segment.row_count - 1) % kAhead];
  const float delta = now.beta * (last.v[lane] - m);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim; ++i) {
    const float value = fmaf(last.k[i], delta, values[i]);
    sum = fmaf(value, last.q[i], sum);
    stored[i * kDim] = value;
  }
  *out = sum;
}

// Block (nv, rows), a thread per value of the head.
__global__ void finish_kernel(DeltaNetArgs args) {
  float* outs = dynamic_shared<float>();
  const uint32_t head = blockIdx.x, row = blockIdx.y, j = threadIdx.x;
  const uint32_t first = head * args.dim;
  float* out = args.heads + uint64_t{row} * args.value_heads * args.dim + first + j;
  const float value = *out;
  outs[j] = value;
  __syncthreads();
  const float gate = args.gate.data[row * args.gate.stride + first + j];
  const float result = gated_output(args, value, sum_squares_f32(outs, args.dim), j, gate);
  *out = result;
  if (args.heads_q8.data != nullptr) {
    quantize_block(result, args.heads_q8.data + row * args.heads_q8.stride, args.heads_q8.cols,
                   (first + j) / kWarp);
  }
}

template <int kDim>
void launch_recur(const DeltaNetArgs& args, cudaStream_t stream) {
  launch(recur_kernel<kDim>,
         {.grid = dim3(args.value_heads * kDim / kWarp, args.window.segment_count), .block = kWarp}, stream,
         args);
}

}  // namespace

void delta_net_long(const DeltaNetArgs& args, cudaStream_t stream) {
  constexpr uint32_t kThreads = 256;
  const uint32_t heads = 2 * args.key_heads + args.value_heads, rows = args.window.row_count;
  const std::size_t head_bytes = sizeof(float) * args.dim;
  launch(prepare_kernel, {.grid = dim3(heads, rows), .block = args.dim, .shared_bytes = head_bytes}, stream,
         args);
  launch(append_kernel,
         {.grid = dim3((heads * args.dim + kThreads - 1) / kThreads, args.window.segment_count),
          .block = kThreads},
         stream, args);
  switch (args.dim) {
    case 32:
      launch_recur<32>(args, stream);
      break;
    case 64:
      launch_recur<64>(args, stream);
      break;
    default:
      launch_recur<128>(args, stream);
      break;
  }
  launch(finish_kernel, {.grid = dim3(args.value_heads, rows), .block = args.dim, .shared_bytes = head_bytes},
         stream, args);
}

}  // namespace strata::gpu_worker::cuda
