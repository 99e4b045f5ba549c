#include "gpu-worker/cuda/products_q8.h"

#include <algorithm>

#include "gpu-worker/cuda/formats.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_source.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// One token after the other costs less than what the window's kernel does for 8, while there are this many,
// or this many in a group.
constexpr uint32_t kRowsTokens = 4, kRowsGroupTokens = 2;
// A square of tiles takes as long as its rows take to be copied, chunk after chunk, however few of its tokens
// there are. It is faster than a window's kernel from this many tokens on, later where there are not enough
// blocks for most multiprocessors (132 of an H200). Groups of many tokens fill large tiles.
constexpr uint32_t kWindowTokens = 8, kFewBlocksTokens = 24, kGroupTokens = 12, kSmallGroupTokens = 96;
constexpr uint64_t kBlocksMin = 100, kLargeBlocksMin = 200;

template <uint32_t kSide>
uint64_t blocks(const ProductLaunch& launch) {
  return uint64_t{tiles_of<kSide>(launch.source)} * ((launch.tokens_max + kSide - 1) / kSide);
}

ProductPath path_of(const ProductLaunch& launch) {
  if (launch.tokens_max <= kRowsTokens) return ProductPath::kRows;
  if (launch.source.hits.counts != nullptr) {
    if (launch.tokens_expected <= kRowsGroupTokens) return ProductPath::kRows;
    if (launch.tokens_expected <= kGroupTokens) return ProductPath::kWindow;
    return launch.tokens_expected <= kSmallGroupTokens ? ProductPath::kSmallTiles : ProductPath::kLargeTiles;
  }
  if (launch.tokens_max <= kWindowTokens) return ProductPath::kWindow;
  if (launch.tokens_max <= kFewBlocksTokens && blocks<64>(launch) < kBlocksMin) return ProductPath::kWindow;
  return blocks<128>(launch) < kLargeBlocksMin ? ProductPath::kSmallTiles : ProductPath::kLargeTiles;
}

SourceMatrix matrix_of(const ProductJob& job) {
  return {.data = job.matrix.data,
          .row_bytes = job.matrix.row_bytes,
          .rows = job.matrix.rows,
          .scale = job.matrix.scale,
          .out = job.out,
          .out_stride = job.out_stride};
}

// One warp, 32 groups at a time.
__global__ void tile_ends_kernel(HitList hits, uint32_t side, uint32_t* tile_ends) {
  const uint32_t groups = hits.counts->groups, lane = lane_index();
  uint32_t before = 0;
  for (uint32_t first = 0; first < groups; first += kWarp) {
    const uint32_t g = first + lane;
    uint32_t end = g < groups ? (hits.groups[g].count + side - 1) / side : 0;
    for (uint32_t s = 1; s < kWarp; s *= 2) {
      const uint32_t other = __shfl_up_sync(kAllLanes, end, s);
      if (lane >= s) end += other;
    }
    if (g < groups) tile_ends[g] = before + end;
    before += __shfl_sync(kAllLanes, end, kWarp - 1);
  }
}

}  // namespace

void find_tile_ends(const HitList& hits, uint32_t side, uint32_t* tile_ends, cudaStream_t stream) {
  launch(tile_ends_kernel, {.grid = dim3(1), .block = dim3(kWarp)}, stream, hits, side, tile_ends);
}

void launch_products_q8(const ProductLaunch& args, ProductPath path, bool tensor_cores, cudaStream_t stream) {
  const bool known = QuantizedFormats::dispatch(args.type, [&](auto format) {
    using F = decltype(format);
    CHECK(args.source.cols % F::kBlockValues == 0, "{} columns of type {}", args.source.cols,
          gguf::tensor_type_info(args.type).name);
    CHECK(path == ProductPath::kRows || !(args.source.silu || args.source.x_floats), "rows only");
    launch_format<F>(args, path, tensor_cores, stream);
  });
  CHECK(known, "products with 8-bit activations of type {}", gguf::tensor_type_info(args.type).name);
}
bool computes_rows(const ProductLaunch& args) { return path_of(args) == ProductPath::kRows; }

void launch_products_q8(const ProductLaunch& args, cudaStream_t stream) {
  launch_products_q8(args, path_of(args), has_tensor_cores(), stream);
}

void multiply_q8(std::span<const ProductJob> jobs, Q8Rows x, uint32_t rows, cudaStream_t stream) {
  CHECK(jobs.size() <= kProductJobsMax, "{} products in one call", jobs.size());
  if (rows == 0) return;
  // The first job of each type takes the others of its type along.
  for (std::size_t first = 0; first < jobs.size(); ++first) {
    const TensorType type = jobs[first].matrix.type;
    const auto same_type = [&](const ProductJob& job) { return job.matrix.type == type; };
    if (std::any_of(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(first), same_type)) continue;
    ProductLaunch args{.source = {}, .type = type, .tokens_max = rows};
    args.source.cols = x.cols;
    args.source.x = x;
    args.source.tokens = rows;
    for (const ProductJob& job : jobs.subspan(first)) {
      if (!same_type(job)) continue;
      CHECK(job.matrix.cols == x.cols, "{} activations for {} columns", x.cols, job.matrix.cols);
      args.source.matrices[args.source.matrix_count++] = matrix_of(job);
    }
    launch_products_q8(args, stream);
  }
}

void multiply_q8_silu(const ProductJob& gate, const DeviceMatrix& up, Q8Rows x, uint32_t rows,
                      cudaStream_t stream) {
  CHECK(gate.matrix.type == up.type && gate.matrix.cols == x.cols && up.cols == x.cols,
        "gate of {} and up of {} columns for {} activations", gate.matrix.cols, up.cols, x.cols);
  if (rows == 0) return;
  ProductLaunch args{.source = {}, .type = up.type, .tokens_max = rows};
  args.source.matrices[0] = matrix_of(gate);
  args.source.matrices[1] = matrix_of({.matrix = up, .out = gate.out, .out_stride = gate.out_stride});
  args.source.matrix_count = 2;
  args.source.cols = x.cols;
  args.source.x = x;
  args.source.tokens = rows;
  args.source.silu = true;
  launch_products_q8(args, ProductPath::kRows, has_tensor_cores(), stream);
}

void multiply_q8_floats(const ProductJob& job, FloatRows x, uint32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  ProductLaunch args{.source = {}, .type = job.matrix.type, .tokens_max = rows};
  args.source.matrices[0] = matrix_of(job);
  args.source.matrix_count = 1;
  args.source.cols = job.matrix.cols;
  args.source.x = {.data = reinterpret_cast<std::byte*>(x.data),
                   .stride = x.stride * sizeof(float),
                   .cols = job.matrix.cols};
  args.source.tokens = rows;
  args.source.x_floats = true;
  launch_products_q8(args, ProductPath::kRows, has_tensor_cores(), stream);
}

}  // namespace strata::gpu_worker::cuda
