#include "gpu-worker/cuda/stream_mixer_up.h"

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stream_mixer_mix.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kColumns = kWarp;  // a block's columns: one block of the 8-bit form
constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kRowsAtOnce = 4;  // dot products of a warp side by side
// More rows than this read the weights more often than products_f32 does.
constexpr uint32_t kRowsMax = 8;

// What a block keeps in shared memory: the weights of its columns, stream by stream as they lie in the file
// (from the last multiple of 16 bytes before them), the row's low values, the masks.
struct UpShape {
  uint32_t piece_bytes = 0;  // of one stream's rows
  uint32_t low_bytes = 0;

  __host__ __device__ uint32_t low_at(uint32_t streams) const { return streams * piece_bytes; }
  __host__ __device__ uint32_t masks_at(uint32_t streams) const { return low_at(streams) + low_bytes; }
  uint32_t bytes(uint32_t streams) const { return masks_at(streams) + streams * kColumns * 4; }
};

// Masks of kRowsAtOnce columns of one stream, by a warp.
template <class Reader>
__device__ inline void masks_of_rows(const uint8_t* first, uint64_t row_bytes, uint32_t rows,
                                     const float* low, uint32_t rank, float scale, float* masks) {
  float sums[kRowsAtOnce][2] = {};
  Reader readers[kRowsAtOnce];
#pragma unroll
  for (uint32_t r = 0; r < kRowsAtOnce; ++r) readers[r].row = first + min(r, rows - 1) * row_bytes;
  uint32_t i = 2 * lane_index();
#pragma unroll 2
  for (; i + 1 < rank; i += kSumLanes) {
    const float2 v = *reinterpret_cast<const float2*>(low + i);
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
      const float2 w = readers[r].pair(i);
      sums[r][0] = fmaf(w.x, v.x, sums[r][0]);
      sums[r][1] = fmaf(w.y, v.y, sums[r][1]);
    }
  }
  if (i < rank) {
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) sums[r][0] = fmaf(readers[r].one(i), low[i], sums[r][0]);
  }
  const float total = total_of_lane_pairs<kRowsAtOnce>(sums);
  const uint32_t r = lane_index() * kRowsAtOnce / kWarp;
  if (lane_index() % (kWarp / kRowsAtOnce) == 0 && r < rows) masks[r] = total * scale;
}

// Block (H / kColumns, rows).
template <class Reader>
__global__ void __launch_bounds__(kThreads) up_kernel(UpAndMixArgs args, UpShape shape) {
  auto* shared = dynamic_shared<std::byte>();
  const uint32_t streams = args.mix.streams, hidden = args.mix.hidden, rank = args.up.cols;
  float* low = reinterpret_cast<float*>(shared + shape.low_at(streams));
  float* masks = reinterpret_cast<float*>(shared + shape.masks_at(streams));  // (C, kColumns)
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
  for (uint32_t i = threadIdx.x; i < rank; i += kThreads) low[i] = args.low[row * rank + i];
  copies_commit();
  copies_wait<0>();
  __syncthreads();

  constexpr uint32_t kGroups = kColumns / kRowsAtOnce;  // of one stream
  for (uint32_t group = warp_index(); group < streams * kGroups; group += kWarps) {
    const uint32_t c = group / kGroups, column = group % kGroups * kRowsAtOnce;
    if (column >= columns) continue;
    const auto* rows =
        reinterpret_cast<const uint8_t*>(shared + c * shape.piece_bytes + misalignment(stored(c)));
    masks_of_rows<Reader>(rows + column * args.up.row_bytes, args.up.row_bytes,
                          min(kRowsAtOnce, columns - column), low, rank, args.up.scale,
                          masks + c * kColumns + column);
  }
  __syncthreads();
  if (warp_index() == 0) {
    mix_column(args.mix, row, first + lane_index(),
               [&](uint32_t c) { return masks[c * kColumns + lane_index()]; });
  }
}

template <class Reader>
void launch_up(const UpAndMixArgs& args, const UpShape& shape, cudaStream_t stream) {
  launch(up_kernel<Reader>,
         {.grid = dim3((args.mix.hidden + kColumns - 1) / kColumns, args.rows),
          .block = kThreads,
          .shared_bytes = shape.bytes(args.mix.streams)},
         stream, args, shape);
}

}  // namespace

bool up_and_mix(const UpAndMixArgs& args, cudaStream_t stream) {
  const uint64_t piece_bytes = (kColumns * args.up.row_bytes + 15 + 15) / 16 * 16;
  if (args.rows > kRowsMax || piece_bytes * args.mix.streams > shared_bytes_max()) return false;
  const UpShape shape = {.piece_bytes = static_cast<uint32_t>(piece_bytes),
                         .low_bytes = (args.up.cols * 4 + 15) / 16 * 16};
  if (shape.bytes(args.mix.streams) > shared_bytes_max()) return false;
  switch (args.up.type) {
    case TensorType::kF32:
      launch_up<FloatReader<F32>>(args, shape, stream);
      return true;
    case TensorType::kF16:
      launch_up<FloatReader<F16>>(args, shape, stream);
      return true;
    case TensorType::kBF16:
      launch_up<FloatReader<BF16>>(args, shape, stream);
      return true;
    case TensorType::kQ8_0:
      launch_up<Q8Reader>(args, shape, stream);
      return true;
    default:
      return false;
  }
}

}  // namespace strata::gpu_worker::cuda
