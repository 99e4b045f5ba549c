#include "gpu-worker/cuda/attention.h"

#include <algorithm>

#include "gpu-worker/cuda/attention_scores.cuh"
#include "gpu-worker/cuda/attention_scores_many.cuh"
#include "gpu-worker/cuda/attention_values_long.cuh"
#include "gpu-worker/cuda/attention_values_short.cuh"
#include "gpu-worker/cuda/launch.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// Up to here a window has too few rows to fill the GPU with the long kernel's blocks.
constexpr uint32_t kShortRowsMax = 16;
constexpr uint32_t kStagedDimMax = 384;      // queries and keys in 48 KiB of shared memory
constexpr uint32_t kRowsPerTileMax = 32768;  // grid index z

uint32_t pieces(uint32_t count, uint32_t size) { return (count + size - 1) / size; }

ScoreTile tile_for(const AttentionArgs& args) {
  ScoreTile tile;
  const uint32_t attended = args.shape.attended_max(args.cache.capacity);
  tile.score_stride = score_stride(attended);
  tile.tiles_max = score_tiles_max(attended);
  tile.row_floats = attention_scratch_floats(args.shape, args.cache.capacity);
  // One row: about a tile for each of an H200's 132 processors and kv heads. Many rows: fewer copies of the
  // queries.
  const uint32_t rows = args.window.row_count;
  tile.tile_tokens = rows <= 2 ? kScoreTileMin : rows <= kShortRowsMax ? 64 : rows <= 64 ? 128 : 256;
  return tile;
}

template <KvFormat kFormat, bool kStaged>
void scores(const AttentionArgs& args, const ScoreTile& tile, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const uint32_t group = shape.heads / shape.kv_heads, heads = std::min(group, kScoreHeads);
  const uint32_t items = tile.tile_tokens / kTileKeys * pieces(heads, kTileQueries);
  const std::size_t staged_bytes =
      kStaged ? std::size_t{kScoreTileMin} * shape.head_dim * kv_value_bytes(kFormat) : 0;
  const bool aligned =
      shape.head_dim % 4 == 0 && args.q.stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.q.data) % 16 == 0;
  launch(attention_scores_kernel<kFormat, kStaged>,
         {.grid = dim3(pieces(shape.attended_max(args.cache.capacity), tile.tile_tokens),
                       shape.kv_heads * pieces(group, kScoreHeads), tile.row_count),
          .block = dim3(std::min(items, kScoreWarpsMax) * kWarp),
          .shared_bytes = std::size_t{heads} * shape.head_dim * sizeof(float) + staged_bytes,
          .early = true},
         stream, args, tile, aligned);
}

template <KvFormat kFormat, uint32_t kLaneValues>
void scores_many(const AttentionArgs& args, const ScoreTile& tile, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const uint32_t group = shape.heads / shape.kv_heads,
                 quads = pieces(std::min(group, kManyHeads), kManyQueries);
  launch(attention_scores_many_kernel<kFormat, kLaneValues>,
         {.grid = dim3(pieces(shape.attended_max(args.cache.capacity), tile.tile_tokens),
                       shape.kv_heads * pieces(group, kManyHeads), tile.row_count),
          .block = dim3(quads * kWarp),
          .shared_bytes = many_shared_bytes<kFormat>(shape.head_dim, quads)},
         stream, args, tile);
}

template <KvFormat kFormat, uint32_t kHeads, uint32_t kDims>
void values_long(const AttentionArgs& args, const ScoreTile& tile, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  launch(attention_values_long_kernel<kFormat, kHeads, kDims>,
         {.grid = dim3(pieces(shape.head_dim, kLongWarps * kWarp * kDims),
                       shape.kv_heads * pieces(shape.heads / shape.kv_heads, kHeads), tile.row_count),
          .block = dim3(kLongWarps * kWarp),
          .shared_bytes = 0},
         stream, args, tile);
}

template <KvFormat kFormat>
void values(const AttentionArgs& args, const ScoreTile& tile, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const uint32_t group = shape.heads / shape.kv_heads;
  if (args.window.row_count <= kShortRowsMax && shape.head_dim % 16 == 0) {
    launch(attention_values_short_kernel<kFormat>,
           {.grid = dim3(pieces(shape.head_dim, kWarp), shape.kv_heads * pieces(group, kShortHeads),
                         tile.row_count),
            .block = dim3(kShortThreads),
            .shared_bytes = kShortBytes<kFormat>,
            .early = true},
           stream, args, tile);
  } else if (shape.head_dim % (2 * kWarp) == 0) {
    group % 12 == 0 ? values_long<kFormat, 12, 2>(args, tile, stream)
                    : values_long<kFormat, 4, 2>(args, tile, stream);
  } else {
    values_long<kFormat, 4, 1>(args, tile, stream);
  }
}

template <KvFormat kFormat>
void attend(const AttentionArgs& args, cudaStream_t stream) {
  ScoreTile tile = tile_for(args);
  const uint32_t rows = args.window.row_count, rows_at_once = std::min(args.score_rows, kRowsPerTileMax);
  for (uint32_t first = 0; first < rows; first += rows_at_once) {
    tile.first_row = first;
    tile.row_count = std::min(rows_at_once, rows - first);
    const uint32_t dim = args.shape.head_dim;
    if (rows > kShortRowsMax && dim == 256) {
      scores_many<kFormat, 4>(args, tile, stream);
    } else if (rows > kShortRowsMax && dim == 64) {
      scores_many<kFormat, 1>(args, tile, stream);
    } else if (tile.tile_tokens == kScoreTileMin && dim % 16 == 0 && dim <= kStagedDimMax) {
      scores<kFormat, true>(args, tile, stream);
    } else {
      scores<kFormat, false>(args, tile, stream);
    }
    values<kFormat>(args, tile, stream);
  }
}

}  // namespace

void attention(const AttentionArgs& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  CHECK(args.window.row_count > 0 && args.score_rows > 0 && shape.heads % shape.kv_heads == 0);
  CHECK(uint64_t{args.cache.capacity} * shape.kv_heads * shape.head_dim <= UINT32_MAX,
        "{} tokens of {} values", args.cache.capacity, shape.kv_heads * shape.head_dim);
  CHECK(shape.block_tokens > 0 || args.chosen == nullptr);
  CHECK(args.out_q8.data == nullptr ||
            (shape.head_dim % kWarp == 0 && args.out_q8.cols == shape.heads * shape.head_dim),
        "{} columns for {} heads of {}", args.out_q8.cols, shape.heads, shape.head_dim);
  switch (args.cache.format) {
    case KvFormat::kF32:
      return attend<KvFormat::kF32>(args, stream);
    case KvFormat::kF16:
      return attend<KvFormat::kF16>(args, stream);
    case KvFormat::kQ8:
      return attend<KvFormat::kQ8>(args, stream);
  }
}

}  // namespace strata::gpu_worker::cuda
