// Long segments (prompts). What needs no state is done for all rows at once: convolution and norms, and the
// output's norm and gate behind it. In between, blocks carry columns of the state through all rows of a
// segment in their registers, or, with the chunked form, through those before and behind its chunks. Where
// states are wanted within the window, the histories are moved on stretch by stretch, then the states.

#include <algorithm>

#include "gpu-worker/cuda/delta_net_chunks.cuh"
#include "gpu-worker/cuda/launch.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// --- Before and after the recurrence: a warp per head of a row, value 32 b + lane of the head in values[b].

constexpr uint32_t kRowWarps = 4;

template <int kDim>
__device__ float sum_squares_of(const float (&values)[kDim / kWarp]) {
  float lanes[2] = {0.0f, 0.0f};
#pragma unroll
  for (int b = 0; b < kDim / static_cast<int>(kWarp); ++b)
    lanes[b % 2] = fmaf(values[b], values[b], lanes[b % 2]);
  return total_of_lanes(lanes[0], lanes[1]);
}

// Block (2 nk + nv, rows / kRowsOfWarp / kRowWarps), a head of some rows a warp. Queries and keys come out
// normalized; beside the values, alpha becomes the decay and beta the step, and log_decays is filled. kTaps:
// 0 stands for any number.
constexpr uint32_t kRowsOfWarp = 8;
template <int kDim, int kTaps>
__global__ void __launch_bounds__(kRowWarps* kWarp) prepare_kernel(DeltaNetArgs args) {
  constexpr int kPieces = kDim / kWarp;
  const uint32_t head = blockIdx.x, taps = kTaps != 0 ? kTaps : args.taps;
  const uint32_t begin = (blockIdx.y * kRowWarps + warp_index()) * kRowsOfWarp;
  const uint32_t end = min(begin + kRowsOfWarp, args.window.row_count);
  const uint32_t channel = head * kDim + lane_index();
  float held[kPieces][kTaps != 0 ? kTaps : 1];
  if constexpr (kTaps != 0) {
#pragma unroll
    for (int b = 0; b < kPieces; ++b) {
#pragma unroll
      for (int i = 0; i < kTaps; ++i) held[b][i] = args.conv[(channel + b * kWarp) * kTaps + i];
    }
  }
  for (uint32_t row = begin; row < end; ++row) {
    const SegmentInfo segment = args.window.segments[args.window.rows[row].segment];
    float values[kPieces];
#pragma unroll
    for (int b = 0; b < kPieces; ++b) {
      const uint32_t at = channel + b * kWarp;
      const float* weights = kTaps != 0 ? held[b] : args.conv + uint64_t{at} * taps;
      values[b] = channel_inputs(args, segment, at).convolved(row - segment.row_begin, weights, taps, 1);
    }
    if (head < 2 * args.key_heads) {
      const float scale = head_scale(sum_squares_of<kDim>(values), kDim, head < args.key_heads);
#pragma unroll
      for (int b = 0; b < kPieces; ++b) values[b] = values[b] * scale;
    }
    float* mixed = args.mixed + uint64_t{row} * channel_count(args) + channel;
#pragma unroll
    for (int b = 0; b < kPieces; ++b) mixed[b * kWarp] = values[b];
  }
  // A lane for each row.
  const uint32_t row = begin + lane_index();
  if (head >= 2 * args.key_heads && row < end) {
    const uint32_t value_head = head - 2 * args.key_heads;
    float* alpha = args.alpha.data + row * args.alpha.stride + value_head;
    float* beta = args.beta.data + row * args.beta.stride + value_head;
    const float log_decay = log_decay_of(args, value_head, *alpha);
    if (args.log_decays != nullptr)
      args.log_decays[uint64_t{row} * args.value_heads + value_head] = log_decay;
    *alpha = exp_value(log_decay);
    *beta = sigmoid_value(*beta);
  }
}

// A thread per channel, block (channels / threads, segments): after prepare_kernel has read the old history.
__global__ void append_kernel(DeltaNetArgs args, RowRange stretch) {
  const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= channel_count(args)) return;
  const SegmentInfo segment = part_within(args.window.segments[blockIdx.y], stretch);
  channel_inputs(args, segment, channel).append(segment.row_count);
}

// Block (nv * rows / kRowWarps).
template <int kDim>
__global__ void __launch_bounds__(kRowWarps* kWarp) finish_kernel(DeltaNetArgs args) {
  constexpr int kPieces = kDim / kWarp;
  const uint32_t unit = blockIdx.x * kRowWarps + warp_index();
  const uint32_t row = unit / args.value_heads, head = unit % args.value_heads;
  if (row >= args.window.row_count) return;
  float* out = args.heads + uint64_t{unit} * kDim + lane_index();
  const float* gate = args.gate.data + row * args.gate.stride + head * kDim + lane_index();
  float values[kPieces], gates[kPieces], norms[kPieces];
#pragma unroll
  for (int b = 0; b < kPieces; ++b) {
    values[b] = out[b * kWarp];
    gates[b] = gate[b * kWarp];
    norms[b] = args.norm[b * kWarp + lane_index()];
  }
  const float sum_squares = sum_squares_of<kDim>(values);
#pragma unroll
  for (int b = 0; b < kPieces; ++b) {
    const float result = gated_output(args, values[b], sum_squares, norms[b], sigmoid_value(gates[b]));
    out[b * kWarp] = result;
    if (args.heads_q8.data != nullptr) {
      quantize_block(result, args.heads_q8.data + row * args.heads_q8.stride, args.heads_q8.cols,
                     head * kPieces + b);
    }
  }
}

// --- The recurrence. Value heads of one key head share its queries and keys, so a block has neighbouring
// columns of all of them: 48, which spreads the 6144 of the real model over 128 multiprocessors of the 132 of
// an H200, three warps for each of their schedulers. 8 threads have a column: thread t lanes t and t + 8 of
// its keys. Columns are independent; the block only stages rows together.

constexpr uint32_t kColumnThreads = kKeyLanes / 2, kWarpColumns = kWarp / kColumnThreads;
constexpr uint32_t kBlockWarps = 12, kBlockColumns = kBlockWarps * kWarpColumns;
constexpr uint32_t kBlockThreads = kBlockWarps * kWarp;
constexpr uint32_t kStageRows = 8;  // staged together; as many as threads have a column, see spread_sums()
static_assert(kStageRows == kColumnThreads);

// A row as a block reads it. While row i is added to the state, m of row i + 1 is taken.
template <int kDim>
struct alignas(16) StagedRow {
  float q[kDim], next_k[kDim], v[kBlockColumns];
};

// Which columns of which heads the block and the warp have.
template <int kDim>
struct Columns {
  const DeltaNetArgs& args;
  uint32_t key_head, first,
      count;  // of the columns of this key head: those of its first value head come first

  __device__ explicit Columns(const DeltaNetArgs& args_in) : args(args_in) {
    count = args.value_heads / args.key_heads * kDim;
    const uint32_t blocks = (count + kBlockColumns - 1) / kBlockColumns;
    key_head = blockIdx.x / blocks;
    first = blockIdx.x % blocks * kBlockColumns;
  }
  __device__ uint32_t first_of_warp(uint32_t warp) const { return first + warp * kWarpColumns; }
  __device__ uint32_t head(uint32_t column) const { return key_head + column / kDim * args.key_heads; }
  // Among the values of all heads.
  __device__ uint32_t value(uint32_t column) const { return head(column) * kDim + column % kDim; }
};

// The keys of a thread's two lanes, and where they are staged: what the 8 threads of a column read together
// lies together, so that they meet no bank twice.
template <int kDim>
struct ThreadKeys {
  static constexpr uint32_t kKeys = kDim / kKeyLanes;  // of a lane
  static constexpr uint32_t kWidth = kKeys < 4 ? kKeys : 4, kParts = kKeys / kWidth;

  // The place of 16 bytes of a head, in units of 16 bytes.
  __device__ static uint32_t place(uint32_t piece) {
    if constexpr (kWidth < 4) return piece;
    const uint32_t lane = piece / kParts, half = lane / kColumnThreads, t = lane % kColumnThreads;
    return (half * kParts + piece % kParts) * kColumnThreads + t;
  }
  __device__ static void load_staged(const float* staged, uint32_t t, float (&to)[2 * kKeys]) {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kParts; ++i)
      load_neighbours<kWidth>(staged + (i * kColumnThreads + t) * kWidth, to + i * kWidth);
  }
  // Which key is number i of thread t.
  __device__ static uint32_t key(uint32_t t, uint32_t i) {
    return (i / kKeys * kColumnThreads + t) * kKeys + i % kKeys;
  }
};

// Asks for rows [first, first + kStageRows) of the segment and the keys after each; beyond the last row there
// is nothing to ask for, and after it any key will do.
template <int kDim>
__device__ void stage_rows(const Columns<kDim>& columns, const SegmentInfo& segment, uint32_t first,
                           StagedRow<kDim>* to) {
  constexpr uint32_t kPieces = kDim / 4, kRowPieces = 2 * kPieces + kBlockWarps;
  static_assert(kWarpColumns == 4);
  const DeltaNetArgs& args = columns.args;
  const uint32_t channels = channel_count(args);
  for (uint32_t x = threadIdx.x; x < kStageRows * kRowPieces; x += kBlockThreads) {
    const uint32_t index = first + x / kRowPieces, next = min(index + 1, segment.row_count - 1);
    if (index >= segment.row_count) break;
    StagedRow<kDim>& row = to[x / kRowPieces];
    const float* mixed = args.mixed + uint64_t{segment.row_begin} * channels;
    uint32_t piece = x % kRowPieces;
    if (piece < kPieces) {
      copy16_async(row.q + 4 * ThreadKeys<kDim>::place(piece),
                   mixed + uint64_t{index} * channels + columns.key_head * kDim + 4 * piece);
    } else if ((piece -= kPieces) < kPieces) {
      copy16_async(
          row.next_k + 4 * ThreadKeys<kDim>::place(piece),
          mixed + uint64_t{next} * channels + (args.key_heads + columns.key_head) * kDim + 4 * piece);
    } else if (const uint32_t column = columns.first_of_warp(piece -= kPieces); column < columns.count) {
      copy16_async(row.v + kWarpColumns * piece,
                   mixed + uint64_t{index} * channels + 2 * args.key_heads * kDim + columns.value(column));
    }
  }
  copies_commit();
}

// The factors of the rows that are staged together, a row in each of the first lanes: the step of row i, and
// the decay before row i + 1; 1 after the last one, which leaves the state as it is.
struct StagedFactors {
  float beta = 0.0f, next_decay = 1.0f;

  __device__ StagedFactors(const DeltaNetArgs& args, const SegmentInfo& segment, uint32_t head,
                           uint32_t first) {
    const uint32_t index = first + lane_index() % kStageRows;
    const uint64_t row = segment.row_begin + index;
    if (index < segment.row_count) beta = args.beta.data[row * args.beta.stride + head];
    if (index + 1 < segment.row_count) next_decay = args.alpha.data[(row + 1) * args.alpha.stride + head];
  }
};

// Of a column's 8 threads; every one gets the sum. Lanes t and t + 8 have been added.
__device__ inline float sum_of_column(float sum) {
  for (uint32_t s = kWarp / 2; s >= kWarpColumns; s /= 2) sum += __shfl_xor_sync(kAllLanes, sum, s);
  return sum;
}
// The same for 8 sums at a time: thread t gets number t.
__device__ inline float spread_sums(float (&sums)[kStageRows]) {
  uint32_t mask = kWarp / 2;
#pragma unroll
  for (uint32_t count = kStageRows / 2; count > 0; count /= 2, mask /= 2) {
    const bool upper = (lane_index() & mask) != 0;
#pragma unroll
    for (uint32_t i = 0; i < count; ++i) {
      const float keep = upper ? sums[i + count] : sums[i], give = upper ? sums[i] : sums[i + count];
      sums[i] = keep + __shfl_xor_sync(kAllLanes, give, mask);
    }
  }
  return sums[0];
}

// Which of the stretch's rows of each segment: all, or those on one side of its chunks.
enum class SegmentPart { kAll, kBeforeChunks, kBehindChunks };
__device__ inline SegmentInfo part_of(SegmentInfo segment, SegmentPart part) {
  if (part == SegmentPart::kAll) return segment;
  const SegmentChunks chunks(segment);
  const uint32_t before = chunks.count == 0 ? 0 : chunks.skipped;
  if (part == SegmentPart::kBeforeChunks) {
    segment.row_count = before;
    return segment;
  }
  const uint32_t done = before + chunks.count * kDeltaChunk;
  segment.row_begin += done;
  segment.row_count -= done;
  return segment;
}

// Block (nk * columns of a key head / kBlockColumns, segments). values[i] is the decayed state of the row at
// hand.
template <int kDim>
__global__ void __launch_bounds__(kBlockThreads, 1)
    recur_kernel(DeltaNetArgs args, RowRange stretch, SegmentPart part) {
  using Keys = ThreadKeys<kDim>;
  constexpr uint32_t kMine = 2 * Keys::kKeys;
  __shared__ StagedRow<kDim> staged[2][kStageRows];
  const SegmentInfo segment = part_of(part_within(args.window.segments[blockIdx.y], stretch), part);
  if (segment.row_count == 0) return;
  const Columns<kDim> columns(args);
  stage_rows(columns, segment, 0, staged[0]);

  // A warp without columns only stages.
  const bool has_columns = columns.first_of_warp(warp_index()) < columns.count;
  const uint32_t in_warp = lane_index() % kWarpColumns, t = lane_index() / kWarpColumns;
  const uint32_t column = (has_columns ? columns.first_of_warp(warp_index()) : columns.first) + in_warp;
  const uint32_t head = columns.head(column);
  const uint32_t in_block = warp_index() * kWarpColumns + in_warp;
  float* stored =
      args.state + segment.sequence * args.state_stride + uint64_t{head} * kDim * kDim + column % kDim;
  float values[kMine], k[kMine];
  StagedFactors factors(args, segment, head, 0);
  const float decay = args.alpha.data[segment.row_begin * args.alpha.stride + head];
  const float* first_k = args.mixed + uint64_t{segment.row_begin} * channel_count(args) +
                         (args.key_heads + columns.key_head) * kDim;
  float lanes[2] = {0.0f, 0.0f};
#pragma unroll
  for (uint32_t i = 0; i < kMine; ++i) {
    values[i] = decay * stored[Keys::key(t, i) * kDim];
    k[i] = first_k[Keys::key(t, i)];
    lanes[i / Keys::kKeys] = fmaf(values[i], k[i], lanes[i / Keys::kKeys]);
  }
  float m = sum_of_column(lanes[0] + lanes[1]);

  float* out = args.heads + uint64_t{segment.row_begin} * args.value_heads * kDim + columns.value(column);
  for (uint32_t first = 0; first < segment.row_count; first += kStageRows) {
    const uint32_t rows = min(kStageRows, segment.row_count - first);
    const StagedRow<kDim>* row = staged[first / kStageRows % 2];
    copies_wait<0>();
    __syncthreads();  // these rows are there, and nobody reads those before any more
    stage_rows(columns, segment, first + kStageRows, staged[(first / kStageRows + 1) % 2]);
    if (!has_columns) continue;
    const StagedFactors next_factors(args, segment, head, first + kStageRows);

    float sums[kStageRows] = {};  // what this thread's lanes add to the outputs
#pragma unroll
    for (uint32_t index = 0; index < kStageRows; ++index) {
      if (index >= rows) break;
      const float beta = __shfl_sync(kAllLanes, factors.beta, index);
      const float next_decay = __shfl_sync(kAllLanes, factors.next_decay, index);
      float q[kMine], next_k[kMine];
      Keys::load_staged(row[index].q, t, q);
      Keys::load_staged(row[index].next_k, t, next_k);
      const float delta = beta * (row[index].v[in_block] - m);
      float o_lanes[2] = {0.0f, 0.0f}, m_lanes[2] = {0.0f, 0.0f};
#pragma unroll
      for (uint32_t i = 0; i < kMine; ++i) {
        const uint32_t lane = i / Keys::kKeys;
        const float value = fmaf(k[i], delta, values[i]);
        o_lanes[lane] = fmaf(value, q[i], o_lanes[lane]);
        values[i] = next_decay * value;
        m_lanes[lane] = fmaf(values[i], next_k[i], m_lanes[lane]);
        k[i] = next_k[i];
      }
      sums[index] = o_lanes[0] + o_lanes[1];
      m = sum_of_column(m_lanes[0] + m_lanes[1]);
    }
    const float sum = spread_sums(sums);
    if (t < rows) out[uint64_t{first + t} * args.value_heads * kDim] = sum;
    factors = next_factors;
  }
  if (!has_columns) return;
#pragma unroll
  for (uint32_t i = 0; i < kMine; ++i) stored[Keys::key(t, i) * kDim] = values[i];
}

template <int kDim>
void recur(const DeltaNetArgs& args, RowRange stretch, SegmentPart part, cudaStream_t stream) {
  const uint32_t columns = args.value_heads / args.key_heads * kDim;
  launch(recur_kernel<kDim>,
         {.grid = dim3(args.key_heads * ((columns + kBlockColumns - 1) / kBlockColumns),
                       args.window.segment_count),
          .block = kBlockThreads},
         stream, args, stretch, part);
}

// The chunks in pieces of equal size that the scratch holds. How many there are only the device knows; this
// is the most.
template <int kDim>
void recur_and_chunk(const DeltaNetArgs& args, RowRange stretch, cudaStream_t stream) {
  const auto most = (stretch.end - stretch.begin) / kDeltaChunk;
  const uint64_t room = args.chunk_scratch.floats / delta_chunk_floats(args.value_heads, args.dim);
  CHECK(room > 0, "{} floats for a chunk of {} heads of {}", args.chunk_scratch.floats, args.value_heads,
        args.dim);
  recur<kDim>(args, stretch, SegmentPart::kBeforeChunks, stream);
  const auto pieces = static_cast<uint32_t>((most + room - 1) / room), size = (most + pieces - 1) / pieces;
  for (uint32_t first = 0; first < most; first += size) {
    const ChunkRange range{.stretch = stretch, .first = first, .count = std::min(size, most - first)};
    solve_chunks(args, range, stream);
    scan_chunks(args, range, stream);
  }
  recur<kDim>(args, stretch, SegmentPart::kBehindChunks, stream);
}

template <int kDim>
void launch_all(const DeltaNetArgs& args, const LayerCaptures& captures, cudaStream_t stream) {
  constexpr uint32_t kThreads = 256;
  const uint32_t heads = 2 * args.key_heads + args.value_heads, rows = args.window.row_count;
  const uint32_t row_blocks = (rows + kRowWarps * kRowsOfWarp - 1) / (kRowWarps * kRowsOfWarp);
  launch(args.taps == 4 ? prepare_kernel<kDim, 4> : prepare_kernel<kDim, 0>,
         {.grid = dim3(heads, row_blocks), .block = kRowWarps * kWarp}, stream, args);
  // All histories before the first chunk, whose scratch may lie on their inputs.
  for_each_stretch(
      captures.all, rows,
      [&](RowRange stretch) {
        launch(append_kernel,
               {.grid = dim3((heads * kDim + kThreads - 1) / kThreads, args.window.segment_count),
                .block = kThreads},
               stream, args, stretch);
      },
      [&](const StateCapture& capture) { keep_history(args, captures, capture, stream); });
  for_each_stretch(
      captures.all, rows,
      [&](RowRange stretch) {
        if (args.log_decays != nullptr && stretch.end - stretch.begin >= kDeltaChunk) {
          recur_and_chunk<kDim>(args, stretch, stream);
        } else {
          recur<kDim>(args, stretch, SegmentPart::kAll, stream);
        }
      },
      [&](const StateCapture& capture) { keep_state(args, captures, capture, stream); });
  launch(finish_kernel<kDim>,
         {.grid = (args.value_heads * rows + kRowWarps - 1) / kRowWarps, .block = kRowWarps * kWarp}, stream,
         args);
}

}  // namespace

void delta_net_long(const DeltaNetArgs& args, const LayerCaptures& captures, cudaStream_t stream) {
  with_head_size(args.dim, [&](auto dim) { launch_all<dim()>(args, captures, stream); });
}

}  // namespace strata::gpu_worker::cuda
