// Experts whose weights are floats: rare, so simple. A warp computes one row for all tokens of a group.

#include "gpu-worker/cuda/formats.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_source.cuh"
#include "gpu-worker/cuda/reductions.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kWarps = 4;

template <class F>
__global__ void float_rows_kernel(const ProductSource source, uint32_t rows) {
  const uint32_t index = blockIdx.x * kWarps + warp_index(), group = index / rows;
  if (group >= source.hits.counts->groups) return;
  const ProductTile tile = find_tile<1>(source, group, index - group * rows);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    const auto* x = reinterpret_cast<const float*>(tile.x_row(t));
    const float dot = sum_in_lanes(
        source.cols,
        [&](uint32_t i) { return float2{F::one(tile.weights + uint64_t{i} * F::kValueBytes), x[i]}; },
        [](float2 pair, float lane) { return fmaf(pair.x, pair.y, lane); });
    if (lane_index() == 0) *tile.out_row(t) = dot * tile.scale;
  }
}

}  // namespace

void launch_products_float(const ProductLaunch& args, cudaStream_t stream) {
  const uint32_t rows = tiles_of<1>(args.source);
  const uint64_t warps = uint64_t{rows} * args.groups_max;
  const bool known = FloatFormats::dispatch(args.type, [&](auto format) {
    launch(
        float_rows_kernel<decltype(format)>,
        {.grid = dim3(static_cast<uint32_t>((warps + kWarps - 1) / kWarps)), .block = dim3(kWarps * kWarp)},
        stream, args.source, rows);
  });
  CHECK(known, "products with floats of type {}", gguf::tensor_type_info(args.type).name);
}

}  // namespace strata::gpu_worker::cuda
