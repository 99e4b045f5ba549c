#include "gpu-worker/cuda/quantize.h"

#include <algorithm>

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/quantize_block.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// A warp for each block of 32 values; few warps a block, so that one row of 2560 values meets 20
// multiprocessors.
constexpr uint32_t kWarps = 4;
constexpr uint32_t kSiluBlocksMax = 2048;  // as many as an H200 holds at once

LaunchShape shape_of(uint32_t rows, uint32_t blocks) {
  const uint64_t warps = uint64_t{rows} * blocks;
  return {.grid = dim3(static_cast<uint32_t>((warps + kWarps - 1) / kWarps)), .block = dim3(kWarps * kWarp)};
}

__global__ void quantize_kernel(QuantizeArgs args) {
  const uint32_t blocks = args.cols / kWarp, index = blockIdx.x * kWarps + warp_index();
  const uint32_t row = index / blocks, block = index - row * blocks;
  if (row >= args.rows) return;
  const float value = args.x.data[row * args.x.stride + block * kWarp + lane_index()];
  quantize_block(value, args.out.data + row * args.out.stride, args.cols, block);
}

__global__ void silu_multiply_kernel(SiluMultiplyArgs args) {
  const uint32_t blocks = (args.cols + kWarp - 1) / kWarp;
  const uint32_t rows = args.row_count != nullptr ? *args.row_count : args.rows;
  for (uint32_t index = blockIdx.x * kWarps + warp_index(); index < rows * blocks;
       index += gridDim.x * kWarps) {
    const uint32_t row = index / blocks, block = index - row * blocks, column = block * kWarp + lane_index();
    float h = 0.0f;
    if (column < args.cols) {
      const float gate = args.gate.data[row * args.gate.stride + column];
      h = silu_value(gate) * args.up.data[row * args.up.stride + column];
      if (args.out.data != nullptr) args.out.data[row * args.out.stride + column] = h;
    }
    if (args.q8.data != nullptr) quantize_block(h, args.q8.data + row * args.q8.stride, args.cols, block);
  }
}

}  // namespace

void quantize_q8(const QuantizeArgs& args, cudaStream_t stream) {
  CHECK(args.cols % kWarp == 0 && args.out.cols == args.cols, "{} columns into {}", args.cols, args.out.cols);
  if (args.rows == 0 || args.cols == 0) return;
  launch(quantize_kernel, shape_of(args.rows, args.cols / kWarp), stream, args);
}

void silu_multiply(const SiluMultiplyArgs& args, cudaStream_t stream) {
  CHECK(args.q8.data == nullptr || (args.cols % kWarp == 0 && args.q8.cols == args.cols),
        "{} columns into {}", args.cols, args.q8.cols);
  if (args.rows == 0 || args.cols == 0) return;
  LaunchShape shape = shape_of(args.rows, (args.cols + kWarp - 1) / kWarp);
  // Often there are far fewer rows than there may be.
  shape.grid.x = std::min(shape.grid.x, kSiluBlocksMax);
  launch(silu_multiply_kernel, shape, stream, args);
}

}  // namespace strata::gpu_worker::cuda
