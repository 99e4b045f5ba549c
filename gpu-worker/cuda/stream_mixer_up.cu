#include "gpu-worker/cuda/stream_mixer_up.h"

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stream_mixer_mix.cuh"
#include "gpu-worker/cuda/weight_lanes.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kColumns = kWarp;  // a block's columns: one block of the 8-bit form
constexpr uint32_t kThreads = 512;
constexpr uint32_t kRowsAtOnce = 4;  // dot products of half a warp side by side
// More rows than this read the weights more often than products_f32 does.
constexpr uint32_t kRowsMax = 8;

// What a block keeps in shared memory: the weights of its columns, stream by stream as they lie in the file
// (from the last multiple of 16 bytes before them), the row's low values, masks and normed streams.
struct UpShape {
  uint64_t piece_bytes;  // of one stream's rows
  uint64_t low_bytes;
  uint32_t streams;

  UpShape(const DeviceMatrix& up, uint32_t streams_in)
      : piece_bytes((kColumns * up.row_bytes + 15 + 15) / 16 * 16),
        low_bytes((uint64_t{up.cols} * 4 + 15) / 16 * 16),
        streams(streams_in) {}
  __host__ __device__ uint64_t low_at() const { return streams * piece_bytes; }
  __host__ __device__ uint64_t masks_at() const { return low_at() + low_bytes; }
  __host__ __device__ uint64_t normed_at() const { return masks_at() + streams * kColumns * sizeof(float); }
  uint64_t bytes() const { return normed_at() + streams * kColumns * sizeof(float); }
};

// Value j of stream c, normed; adds what is pending on the way.
__device__ inline float normed_value(const NormedStreams& inputs, const MixArgs& mix, uint64_t row,
                                     uint32_t c, uint32_t j) {
  const uint32_t in_row = c * mix.hidden + j;
  const uint64_t at = row * mix.streams * mix.hidden + in_row;
  if (inputs.normed != nullptr) return inputs.normed[at];
  float x = inputs.streams[at];
  if (inputs.pending.output != nullptr) {
    x = fmaf(inputs.pending.inject[row * mix.streams + c], inputs.pending.output[row * mix.hidden + j], x);
    inputs.streams[at] = x;
  }
  return normed(x, inputs.scales[row * mix.streams + c], inputs.norm[in_row]);
}

// Masks of kRowsAtOnce columns next to each other, by half a warp.
template <class Quads>
__device__ inline void masks_of_rows(const uint8_t* first, uint64_t row_bytes, uint32_t rows,
                                     const float* low, uint32_t rank, float scale, float* masks) {
  float sums[kRowsAtOnce][4] = {};
  const uint8_t* row[kRowsAtOnce];
#pragma unroll
  for (uint32_t r = 0; r < kRowsAtOnce; ++r) row[r] = first + min(r, rows - 1) * row_bytes;
  const uint32_t t = lane_index() % kQuadThreads;
  uint32_t i = 4 * t;
#pragma unroll 2
  for (; i + 3 < rank; i += kSumLanes) {
    const float4 v = *reinterpret_cast<const float4*>(low + i);
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
      const float4 w = Quads::four(row[r], i);
      sums[r][0] = fmaf(w.x, v.x, sums[r][0]);
      sums[r][1] = fmaf(w.y, v.y, sums[r][1]);
      sums[r][2] = fmaf(w.z, v.z, sums[r][2]);
      sums[r][3] = fmaf(w.w, v.w, sums[r][3]);
    }
  }
#pragma unroll
  for (uint32_t k = 0; k < 3; ++k) {  // the end of a rank that is no multiple of 4
    if (i + k >= rank) break;
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r)
      sums[r][k] = fmaf(Quads::one(row[r], i + k), low[i + k], sums[r][k]);
  }
  const float total = total_of_lane_quads(sums);
  if (t % 4 == 0 && t / 4 < rows) masks[t / 4] = total * scale;
}

// Block (H / kColumns, rows).
template <class Quads>
__global__ void __launch_bounds__(kThreads) up_kernel(UpAndMixArgs args, UpShape shape) {
  let_next_kernel_begin();
  auto* shared = dynamic_shared<std::byte>();
  const uint32_t streams = args.mix.streams, hidden = args.mix.hidden, rank = args.up.cols;
  float* low = reinterpret_cast<float*>(shared + shape.low_at());
  float* masks = reinterpret_cast<float*>(shared + shape.masks_at());    // (C, kColumns)
  float* normed = reinterpret_cast<float*>(shared + shape.normed_at());  // (C, kColumns)
  const uint32_t first = blockIdx.x * kColumns, columns = min(kColumns, hidden - first);
  const uint64_t row = blockIdx.y;

  const auto stored = [&](uint32_t c) {
    return args.up.data + (uint64_t{c} * hidden + first) * args.up.row_bytes;
  };
  const auto misalignment = [](const std::byte* p) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) & 15);
  };
  for (uint32_t c = 0; c < streams; ++c) {
    const uint32_t before = misalignment(stored(c));
    const uint32_t bytes = before + columns * static_cast<uint32_t>(args.up.row_bytes);
    for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * kThreads)
      copy16_async(shared + c * shape.piece_bytes + at, stored(c) - before + at);
  }
  copies_commit();
  await_earlier_kernels();
  for (uint32_t i = threadIdx.x; i < rank; i += kThreads) low[i] = args.low[row * rank + i];
  for (uint32_t i = threadIdx.x; i < streams * kColumns; i += kThreads) {
    const uint32_t c = i / kColumns, j = i % kColumns;
    if (j < columns) normed[i] = normed_value(args.inputs, args.mix, row, c, first + j);
  }
  copies_wait<0>();
  __syncthreads();

  // Whole warps come here together, halves of them with rows of their own.
  constexpr uint32_t kGroups = kColumns / kRowsAtOnce;  // of one stream
  static_assert(kGroups % 2 == 0);
  for (uint32_t group = threadIdx.x / kQuadThreads; group < streams * kGroups;
       group += kThreads / kQuadThreads) {
    const uint32_t c = group / kGroups, column = min(group % kGroups * kRowsAtOnce, columns - 1);
    const auto* rows =
        reinterpret_cast<const uint8_t*>(shared + c * shape.piece_bytes + misalignment(stored(c)));
    masks_of_rows<Quads>(rows + column * args.up.row_bytes, args.up.row_bytes,
                         min(kRowsAtOnce, columns - column), low, rank, args.up.scale,
                         masks + c * kColumns + column);
  }
  __syncthreads();
  if (warp_index() == 0) {
    mix_column(
        args.mix, row, first + lane_index(), [&](uint32_t c) { return masks[c * kColumns + lane_index()]; },
        [&](uint32_t c) { return normed[c * kColumns + lane_index()]; });
  }
}

template <class Quads>
void launch_up(const UpAndMixArgs& args, cudaStream_t stream) {
  const UpShape shape(args.up, args.mix.streams);
  launch(up_kernel<Quads>,
         {.grid = dim3((args.mix.hidden + kColumns - 1) / kColumns, args.rows),
          .block = kThreads,
          .shared_bytes = shape.bytes(),
          .early = true},
         stream, args, shape);
}

}  // namespace

bool can_up_and_mix(const DeviceMatrix& up, uint32_t streams, uint32_t rows) {
  return rows <= kRowsMax && has_direct_reader(up.type) && UpShape(up, streams).bytes() <= shared_bytes_max();
}

void up_and_mix(const UpAndMixArgs& args, cudaStream_t stream) {
  CHECK(can_up_and_mix(args.up, args.mix.streams, args.rows));
  switch (args.up.type) {
    case TensorType::kF32:
      return launch_up<FloatQuads<F32>>(args, stream);
    case TensorType::kF16:
      return launch_up<FloatQuads<F16>>(args, stream);
    case TensorType::kBF16:
      return launch_up<FloatQuads<BF16>>(args, stream);
    default:
      return launch_up<Q8Quads>(args, stream);
  }
}

}  // namespace strata::gpu_worker::cuda
