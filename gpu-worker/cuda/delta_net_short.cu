// A few rows a sequence (decode, drafts): everything in one launch, a block per sequence and value head. The
// head's state is on its way into the block's registers before anything else begins. What needs no state is
// done for all rows at once, then the rows follow each other, two barriers each.

#include <algorithm>

#include "gpu-worker/cuda/delta_net_parts.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

// What a block keeps of up to `rows_max` rows, in shared memory; arrays aligned to 16.
struct HeadRows {
  float* base;
  uint32_t rows_max, padded;  // padded: dim rounded up to 4

  __host__ __device__ static uint32_t floats(uint32_t rows_max, uint32_t padded) {
    return rows_max * (5 * padded + 4) + padded;
  }
  __device__ float* part(uint32_t which, uint32_t row) const {
    return base + (which * rows_max + row) * padded;
  }
  // First as convolved, then normalized.
  __device__ float* q(uint32_t row) const { return part(0, row); }
  __device__ float* k(uint32_t row) const { return part(1, row); }
  __device__ float* v(uint32_t row) const { return part(2, row); }
  __device__ float* gate(uint32_t row) const { return part(3, row); }  // its sigmoid
  __device__ float* out(uint32_t row) const { return part(4, row); }
  __device__ float* norm() const { return part(5, 0); }  // ssm_norm, one for all rows
  __device__ float& decay(uint32_t row) const { return norm()[padded + 2 * row]; }
  __device__ float& beta(uint32_t row) const { return norm()[padded + 2 * row + 1]; }
};

// The state of one head in the registers of a block: lane l of the keys belongs to dim / 4 neighbouring
// threads, four columns each. All its loads are in flight at once, 16 bytes a thread.
template <int kDimOfHead>
struct RegisterState {
  static constexpr uint32_t kDim = kDimOfHead, kQuads = kDim / 4, kThreads = kKeyLanes * kQuads;
  static constexpr uint32_t kBlocksPerSm = 1024 / kThreads;
  static constexpr uint32_t kKeys = kDim / kKeyLanes;
  // Shared memory: the lanes' sums of m and of o, and delta.
  static constexpr uint32_t kFloats = (2 * kKeyLanes + 1) * kDim;

  Neighbours<4> values[kKeys];

  __device__ static uint32_t first_key() { return threadIdx.x / kQuads * kKeys; }
  __device__ static uint32_t first_column() { return threadIdx.x % kQuads * 4; }

  __device__ RegisterState(const float* stored, uint32_t /*dim*/) {
#pragma unroll
    for (uint32_t i = 0; i < kKeys; ++i) {
      values[i] = *reinterpret_cast<const Neighbours<4>*>(stored + (first_key() + i) * kDim + first_column());
    }
  }
  __device__ void store(float* stored) const {
#pragma unroll
    for (uint32_t i = 0; i < kKeys; ++i) {
      *reinterpret_cast<Neighbours<4>*>(stored + (first_key() + i) * kDim + first_column()) = values[i];
    }
  }

  // All rows, as model's delta_step does them; all threads, barriers inside. q, k, v and the factors are
  // there.
  __device__ void advance(const HeadRows& head, uint32_t rows, float* shared) {
    float* m_lanes = shared;
    float* o_lanes = m_lanes + kKeyLanes * kDim;
    float* delta = o_lanes + kKeyLanes * kDim;
    const uint32_t j = threadIdx.x % kDim;
    for (uint32_t row = 0; row < rows; ++row) {
      store_lane(m_lanes, recall(head.k(row), head.decay(row)));
      __syncthreads();
      if (threadIdx.x < kDim) {
        delta[j] = head.beta(row) * (head.v(row)[j] - lanes_of(m_lanes, j));
      } else if (row > 0 && threadIdx.x < 2 * kDim) {
        head.out(row - 1)[j] = lanes_of(o_lanes, j);
      }
      __syncthreads();
      store_lane(o_lanes, learn(head.k(row), head.q(row), delta));
    }
    __syncthreads();
    if (threadIdx.x < kDim) head.out(rows - 1)[j] = lanes_of(o_lanes, j);
  }

 private:
  __device__ Neighbours<4> recall(const float* k, float decay) {
    float keys[kKeys];
    load_neighbours<kKeys>(k + first_key(), keys);
    Neighbours<4> sum = {};
#pragma unroll
    for (uint32_t i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[i].at[c] = decay * values[i].at[c];
        sum.at[c] = fmaf(values[i].at[c], keys[i], sum.at[c]);
      }
    }
    return sum;
  }
  __device__ Neighbours<4> learn(const float* k, const float* q, const float* delta) {
    float keys[kKeys], queries[kKeys];
    load_neighbours<kKeys>(k + first_key(), keys);
    load_neighbours<kKeys>(q + first_key(), queries);
    const Neighbours<4> step = *reinterpret_cast<const Neighbours<4>*>(delta + first_column());
    Neighbours<4> sum = {};
#pragma unroll
    for (uint32_t i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[i].at[c] = fmaf(keys[i], step.at[c], values[i].at[c]);
        sum.at[c] = fmaf(values[i].at[c], queries[i], sum.at[c]);
      }
    }
    return sum;
  }
  __device__ static void store_lane(float* lanes, const Neighbours<4>& sum) {
    *reinterpret_cast<Neighbours<4>*>(lanes + threadIdx.x / kQuads * kDim + first_column()) = sum;
  }
  __device__ static float lanes_of(const float* lanes, uint32_t j) {
    float sums[kKeyLanes];
#pragma unroll
    for (uint32_t l = 0; l < kKeyLanes; ++l) sums[l] = lanes[l * kDim + j];
    return sum_of_key_lanes(sums);
  }
};

// The same for any dim: the state stays where it is, a thread per column.
struct MemoryState {
  static constexpr uint32_t kDim = 0, kThreads = 256, kBlocksPerSm = 1, kFloats = 0;
  float* stored;
  uint32_t dim;

  __device__ MemoryState(float* stored_in, uint32_t dim_in) : stored(stored_in), dim(dim_in) {}
  __device__ void store(float* /*stored*/) const {}

  __device__ void advance(const HeadRows& head, uint32_t rows, float* /*shared*/) {
    for (uint32_t j = threadIdx.x; j < dim; j += blockDim.x) {
      float* column = stored + j;
      for (uint32_t row = 0; row < rows; ++row) {
        const float decay = head.decay(row);
        const float *q = head.q(row), *k = head.k(row);
        const float m =
            sum_over_keys([&](uint32_t i, float lane) { return fmaf(decay * column[i * dim], k[i], lane); });
        const float delta = head.beta(row) * (head.v(row)[j] - m);
        head.out(row)[j] = sum_over_keys([&](uint32_t i, float lane) {
          const float value = fmaf(k[i], delta, decay * column[i * dim]);
          column[i * dim] = value;
          return fmaf(value, q[i], lane);
        });
      }
    }
  }

 private:
  template <class Step>
  __device__ float sum_over_keys(Step step) const {
    const uint32_t keys = (dim + kKeyLanes - 1) / kKeyLanes;
    float lanes[kKeyLanes];
#pragma unroll
    for (uint32_t l = 0; l < kKeyLanes; ++l) {
      lanes[l] = 0.0f;
      for (uint32_t i = l * keys; i < min((l + 1) * keys, dim); ++i) lanes[l] = step(i, lanes[l]);
    }
    return sum_of_key_lanes(lanes);
  }
};

// One block's share of the work: a value head of a segment.
struct HeadOfSegment {
  const DeltaNetArgs& args;
  SegmentInfo segment;
  uint32_t head, key_head, dim;

  // Head number `head` of all channels: queries, keys, values.
  __device__ ChannelInputs inputs(uint32_t channel) const { return channel_inputs(args, segment, channel); }
  __device__ uint32_t query_channel(uint32_t j) const { return key_head * dim + j; }
  __device__ uint32_t key_channel(uint32_t j) const { return (args.key_heads + key_head) * dim + j; }
  __device__ uint32_t value_channel(uint32_t j) const { return (2 * args.key_heads + head) * dim + j; }

  // Rows [first, first + rows) of the segment: everything that needs no state, but the norms. One number a
  // thread where there is one row and the head has registers.
  __device__ void prepare(const HeadRows& to, uint32_t first, uint32_t rows) const {
    for (uint32_t x = threadIdx.x; x < rows * 4 * dim; x += blockDim.x) {
      const uint32_t index = x / (4 * dim), part = x / dim % 4, j = x % dim;
      if (part < 3) {
        const uint32_t channel = part == 0 ? query_channel(j) : part == 1 ? key_channel(j) : value_channel(j);
        to.part(part, index)[j] =
            inputs(channel).convolved(first + index, args.conv + uint64_t{channel} * args.taps, args.taps, 1);
        continue;
      }
      // These threads have the least to wait for, so two of them do more.
      const uint64_t row = segment.row_begin + first + index;
      const float gate = args.gate.data[row * args.gate.stride + uint64_t{head} * dim + j];
      if (index == 0) to.norm()[j] = args.norm[j];
      if (j == 0) to.beta(index) = sigmoid_value(args.beta.data[row * args.beta.stride + head]);
      if (j + 1 == dim)
        to.decay(index) = decay_of(args, head, args.alpha.data[row * args.alpha.stride + head]);
      to.gate(index)[j] = sigmoid_value(gate);
    }
  }
  // A warp for each query and key.
  __device__ void normalize(const HeadRows& rows_of, uint32_t rows) const {
    for (uint32_t x = warp_index(); x < 2 * rows; x += blockDim.x / kWarp) {
      const bool query = x % 2 == 0;
      float* values = query ? rows_of.q(x / 2) : rows_of.k(x / 2);
      const float scale = head_scale(sum_squares_f32(values, dim), dim, query);
      for (uint32_t j = lane_index(); j < dim; j += kWarp) values[j] = values[j] * scale;
    }
  }
  // A warp for 32 values of a row.
  __device__ void finish(const HeadRows& from, uint32_t first, uint32_t rows, bool quantize) const {
    const uint32_t pieces = (dim + kWarp - 1) / kWarp;
    for (uint32_t x = warp_index(); x < rows * pieces; x += blockDim.x / kWarp) {
      const uint32_t index = x / pieces, j = x % pieces * kWarp + lane_index();
      const uint64_t row = segment.row_begin + first + index, column = uint64_t{head} * dim + j;
      const float sum_squares = sum_squares_f32(from.out(index), dim);
      float result = 0.0f;
      if (j < dim) {
        result = gated_output(args, from.out(index)[j], sum_squares, from.norm()[j], from.gate(index)[j]);
        args.heads[row * args.value_heads * dim + column] = result;
      }
      if (quantize) {
        quantize_block(result, args.heads_q8.data + row * args.heads_q8.stride, args.heads_q8.cols,
                       static_cast<uint32_t>(column) / kWarp);
      }
    }
  }
};

// Block (segments * value_heads). Dynamic shared memory: HeadRows, then what the state needs.
template <class State>
__global__ void __launch_bounds__(State::kThreads, State::kBlocksPerSm)
    short_kernel(DeltaNetArgs args, RowRange stretch, uint32_t rows_at_once, bool quantize) {
  __shared__ uint32_t arrived;
  let_next_kernel_begin();
  const uint32_t dim = State::kDim != 0 ? State::kDim : args.dim;
  const HeadRows rows_of = {dynamic_shared<float>(), rows_at_once, (dim + 3) / 4 * 4};
  float* state_shared = rows_of.base + HeadRows::floats(rows_at_once, rows_of.padded);

  const uint32_t segment_index = blockIdx.x / args.value_heads, head = blockIdx.x % args.value_heads;
  SegmentInfo segment = args.window.segments[segment_index];
  if constexpr (State::kDim == 0) segment = part_within(segment, stretch);
  const HeadOfSegment mine = {args, segment, head, head % args.key_heads, dim};
  const uint32_t count = mine.segment.row_count;
  float* stored = args.state + mine.segment.sequence * args.state_stride + uint64_t{head} * dim * dim;
  State state(stored, dim);  // of the window before: nobody still writes it
  await_earlier_kernels();
  if (State::kDim == 0 && count == 0) return;

  uint32_t* arrivals = args.arrivals + segment_index * args.key_heads + mine.key_head;
  for (uint32_t first = 0; first < count; first += rows_at_once) {
    const uint32_t rows = min(rows_at_once, count - first);
    const bool last = first + rows == count;
    mine.prepare(rows_of, first, rows);
    __syncthreads();
    mine.normalize(rows_of, rows);
    __syncthreads();
    state.advance(rows_of, rows, state_shared);
    if (last) state.store(stored);
    __syncthreads();
    // Every thread of the block has read what it needs of the history. The last thread is the least busy one.
    if (last && threadIdx.x + 1 == blockDim.x) {
      __threadfence();
      arrived = atomicAdd(arrivals, 1u) + 1;
    }
    mine.finish(rows_of, first, rows, quantize);
    __syncthreads();
  }

  // Moves the convolution's history on. The channels of a value head are this block's own; those of its key
  // head are read by several blocks, and the last one to have read them writes.
  const bool last_reader = arrived == args.value_heads / args.key_heads;
  for (uint32_t x = threadIdx.x; x < (last_reader ? 3 : 1) * dim; x += blockDim.x) {
    const uint32_t part = x / dim, j = x % dim;
    mine.inputs(part == 0   ? mine.value_channel(j)
                : part == 1 ? mine.query_channel(j)
                            : mine.key_channel(j))
        .append(count);
  }
  if (last_reader && threadIdx.x == 0) *arrivals = 0;
}

template <class State>
void launch_short(const DeltaNetArgs& args, RowRange stretch, bool quantize, cudaStream_t stream) {
  // No segment has more rows than the window leaves it. Large heads, of which there is no model yet, go row
  // by row for the sake of the shared memory.
  const uint32_t rows_of_segment = args.window.row_count - args.window.segment_count + 1;
  const uint32_t rows_at_once = args.dim > 128 ? 1 : std::min(kShortRows, rows_of_segment);
  const uint32_t padded = (args.dim + 3) / 4 * 4;
  launch(short_kernel<State>,
         {.grid = args.window.segment_count * args.value_heads,
          .block = State::kThreads,
          .shared_bytes = sizeof(float) * (HeadRows::floats(rows_at_once, padded) + State::kFloats),
          .early = true},
         stream, args, stretch, rows_at_once, quantize);
}

}  // namespace

void delta_net_short(const DeltaNetArgs& args, RowRange stretch, cudaStream_t stream) {
  // Blocks of 32 within a head are quantized on the way.
  const bool quantize = args.heads_q8.data != nullptr && args.dim % kWarp == 0;
  switch (args.dim) {
    case 32:
      launch_short<RegisterState<32>>(args, stretch, quantize, stream);
      break;
    case 64:
      launch_short<RegisterState<64>>(args, stretch, quantize, stream);
      break;
    case 128:
      launch_short<RegisterState<128>>(args, stretch, quantize, stream);
      break;
    default:
      launch_short<MemoryState>(args, stretch, quantize, stream);
      break;
  }
}

}  // namespace strata::gpu_worker::cuda
