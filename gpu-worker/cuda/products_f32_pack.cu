#include "gpu-worker/cuda/products_f32_packed.h"

#include "gpu-worker/cuda/dequantize.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = kChunkColumns;  // one column each
constexpr uint32_t kRows = kTileRows / 2;     // of a block: what static shared memory has room for
constexpr uint32_t kUnits = kChunkColumns / kUnitValues;
static_assert(kRows * kUnits == kThreads);

// Block (half tiles, chunks of columns): four rows of a column at a time, so that a warp reads 32
// neighbouring values and writes groups of four lanes.
__global__ void __launch_bounds__(kThreads)
    pack_kernel(PackJobs jobs, float padding, uint32_t first_tile, float* to) {
  __shared__ float4 converted[kRows * kChunkColumns / 4];  // rows of units, unit u swizzled by u
  const PackJob& job = jobs.of_tile(first_tile + blockIdx.x / 2);
  const DeviceMatrix& matrix = job.matrix;
  const uint32_t row = (first_tile + blockIdx.x / 2 - job.first_tile) * kTileRows + blockIdx.x % 2 * kRows;
  const uint32_t rows = matrix.rows > row ? min(kRows, matrix.rows - row) : 0;
  const uint32_t column = blockIdx.y * kChunkColumns + threadIdx.x;
  const bool inside = column < matrix.cols, as_stored = matrix.type == TensorType::kF32;
  if (!as_stored) {
    const uint32_t r = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
    const uint32_t first = blockIdx.y * kChunkColumns + unit * kUnitValues;
    if (r < rows && first < matrix.cols) {
      dequantize_unit(matrix.type,
                      reinterpret_cast<const uint8_t*>(matrix.data + (row + r) * matrix.row_bytes),
                      first / kUnitValues, min(kUnitValues, matrix.cols - first),
                      reinterpret_cast<float*>(converted) + r * kChunkColumns + unit * kUnitValues, unit);
    }
    __syncthreads();
  }
  const uint32_t unit = threadIdx.x / kUnitValues;
  const float* own = reinterpret_cast<const float*>(converted) + unit * kUnitValues +
                     swizzled(threadIdx.x % kUnitValues, unit);
  const auto value = [&](uint32_t r) {
    if (r >= rows) return 0.0f;
    if (!inside) return padding;
    if (!as_stored) return own[r * kChunkColumns];
    return reinterpret_cast<const float*>(matrix.data + (row + r) * matrix.row_bytes)[column];
  };
  const uint32_t turn = column / kTurnColumns, lane = column % kTurnColumns;
  float* place = to + blockIdx.x / 2 * packed_tile_floats(matrix.cols) +
                 class_of(lane % kClasses) * packed_class_floats(matrix.cols) + turn * kTurnFloats +
                 blockIdx.x % 2 * kRows * kClassLanes;
#pragma unroll
  for (uint32_t r = 0; r < kRows; r += 4) {
    *reinterpret_cast<float4*>(place + packed_place(r / 4, lane / kClasses)) = {value(r), value(r + 1),
                                                                                value(r + 2), value(r + 3)};
  }
}

}  // namespace

void pack(const PackJobs& jobs, PackAs as, uint32_t first_tile, uint32_t tiles, float* to,
          cudaStream_t stream) {
  const uint32_t chunks = packed_chunks(jobs.jobs[0].matrix.cols);
  launch(pack_kernel, {.grid = dim3(2 * tiles, chunks), .block = kThreads}, stream, jobs,
         as == PackAs::kWeights ? -0.0f : 0.0f, first_tile, to);
}

}  // namespace strata::gpu_worker::cuda
