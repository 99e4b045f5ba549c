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

__device__ inline void load_values(const float* from, float (&to)[1]) { to[0] = *from; }
__device__ inline void load_values(const float* from, float (&to)[4]) {
  const float4 values = *reinterpret_cast<const float4*>(from);
  to[0] = values.x, to[1] = values.y, to[2] = values.z, to[3] = values.w;
}

__device__ inline void store_values(float* to, const float (&values)[1]) { *to = values[0]; }
__device__ inline void store_values(float* to, const float (&values)[4]) {
  *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
}

// A warp for kValues blocks of 32 values: threads have kValues neighbouring ones.
template <int kValues>
__global__ void silu_multiply_kernel(SiluMultiplyArgs args) {
  constexpr uint32_t kLanes = kWarp / kValues;  // of a block
  const uint32_t blocks = (args.cols + kWarp - 1) / kWarp;
  const uint32_t rows = args.row_count != nullptr ? *args.row_count : args.rows;
  for (uint32_t first = (blockIdx.x * kWarps + warp_index()) * kValues; first < rows * blocks;
       first += gridDim.x * kWarps * kValues) {
    const uint32_t index = first + lane_index() / kLanes, row = index / blocks, block = index - row * blocks;
    const uint32_t column = block * kWarp + lane_index() % kLanes * kValues;
    float h[kValues] = {};
    if (row < rows && column < args.cols) {
      float gate[kValues], up[kValues];
      load_values(args.gate.data + row * args.gate.stride + column, gate);
      load_values(args.up.data + row * args.up.stride + column, up);
#pragma unroll
      for (int i = 0; i < kValues; ++i) h[i] = silu_value(gate[i]) * up[i];
      if (args.out.data != nullptr) store_values(args.out.data + row * args.out.stride + column, h);
    }
    if (args.q8.data != nullptr) {
      std::byte* to = row < rows ? args.q8.data + row * args.q8.stride : nullptr;
      quantize_block<kValues>(h, to, args.cols, block);
    }
  }
}

bool in_fours(FloatRows rows) {
  return rows.stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.data) % sizeof(float4) == 0;
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
  const uint32_t blocks = (args.cols + kWarp - 1) / kWarp;
  // Often there are far fewer rows than there may be.
  LaunchShape shape = shape_of(args.rows, blocks);
  shape.grid.x = std::min(shape.grid.x, kSiluBlocksMax);
  // Where every warp has several blocks to do anyway it does four at once.
  const bool many = uint64_t{args.rows} * blocks >= uint64_t{4} * kWarps * kSiluBlocksMax;
  if (many && args.cols % 4 == 0 && in_fours(args.gate) && in_fours(args.up) && in_fours(args.out)) {
    launch(silu_multiply_kernel<4>, shape, stream, args);
  } else {
    launch(silu_multiply_kernel<1>, shape, stream, args);
  }
}

}  // namespace strata::gpu_worker::cuda
