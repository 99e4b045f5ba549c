#include "gpu-worker/cuda/embedding.h"

#include "gpu-worker/cuda/dequantize.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kPiece = kWarp * kUnitValues;  // columns of a block; its first warp dequantizes them

// Block (pieces, rows).
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs args) {
  alignas(16) __shared__ float values[kPiece];
  const uint32_t first = blockIdx.x * kPiece, hidden = args.table.cols;
  const uint32_t count = min(kPiece, hidden - first);
  const uint64_t row = blockIdx.y;
  const uint64_t token = static_cast<uint32_t>(args.window.rows[row].token);
  const auto* stored = reinterpret_cast<const uint8_t*>(args.table.data + token * args.table.row_bytes);
  const uint32_t unit = threadIdx.x;
  if (unit < kWarp && unit * kUnitValues < count) {
    dequantize_unit(args.table.type, stored, first / kUnitValues + unit,
                    min(kUnitValues, count - unit * kUnitValues), values + unit * kUnitValues, unit);
  }
  __syncthreads();
  float* streams = args.streams + row * args.streams_count * hidden + first;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    float value = values[i / kUnitValues * kUnitValues + swizzled(i % kUnitValues, i / kUnitValues)];
    if (args.table.scale != 1.0f) value *= args.table.scale;
    for (uint32_t c = 0; c < args.streams_count; ++c) streams[uint64_t{c} * hidden + i] = value;
  }
}

}  // namespace

void embed_tokens(const EmbedArgs& args, cudaStream_t stream) {
  if (args.window.row_count == 0) return;
  launch(embed_kernel,
         {.grid = dim3((args.table.cols + kPiece - 1) / kPiece, args.window.row_count), .block = kThreads},
         stream, args);
}

}  // namespace strata::gpu_worker::cuda
