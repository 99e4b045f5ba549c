#pragma once
// What a block or a warp of a product kernel works on, found from its number.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/products_q8_source.h"

namespace strata::gpu_worker::cuda {

// Rows of a matrix and the tokens that they meet.
struct ProductTile {
  const uint8_t* weights = nullptr;  // the first of the rows
  uint64_t row_bytes = 0;
  uint32_t row_count = 0;
  uint32_t units = 0;
  float scale = 1.0f;

  uint32_t tokens = 0;
  const std::byte* x = nullptr;
  uint64_t x_stride = 0;
  const uint32_t* x_pairs = nullptr;  // token t reads row x_pairs[t] / top_k of x; without: row t
  uint32_t top_k = 1;
  float* out = nullptr;
  uint64_t out_stride = 0;
  const uint32_t* out_pairs = nullptr;  // token t writes row out_pairs[t] of out; without: row t

  __device__ const std::byte* x_row(uint32_t token) const {
    return x + (x_pairs == nullptr ? token : x_pairs[token] / top_k) * x_stride;
  }
  __device__ uint32_t out_row_index(uint32_t token) const {
    return out_pairs == nullptr ? token : out_pairs[token];
  }
  __device__ float* out_row(uint32_t token) const { return out + out_row_index(token) * out_stride; }
};

// How many bytes the line of 16 that holds *p begins before it.
__device__ inline uint32_t bytes_before(const void* p) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 15;
}

// The number of tiles of kRows rows that a group has.
template <uint32_t kRows>
uint32_t tiles_of(const ProductSource& source) {
  uint32_t tiles = 0;
  for (uint32_t i = 0; i < source.matrix_count; ++i) tiles += (source.matrices[i].rows + kRows - 1) / kRows;
  return tiles;
}

// At most `rows_max` rows from `row` on of a matrix, and the tokens that they meet: those of `hit`, if there
// are groups.
__device__ inline ProductTile tile_at(const ProductSource& source, const HitGroup& hit,
                                      const SourceMatrix& matrix, uint32_t row, uint32_t rows_max) {
  ProductTile tile;
  tile.row_bytes = matrix.row_bytes;
  tile.row_count = matrix.rows - row < rows_max ? matrix.rows - row : rows_max;
  tile.units = source.cols / 32;
  tile.x = source.x.data;
  tile.x_stride = source.x.stride;
  tile.out = matrix.out + row;
  tile.out_stride = matrix.out_stride;
  const std::byte* data = matrix.data;
  if (source.hits.counts == nullptr) {
    tile.scale = matrix.scale;
    tile.tokens = source.tokens;
  } else {
    data = hit.record + matrix.offset;
    if (matrix.scales != nullptr) tile.scale = matrix.scales[hit.expert];
    tile.tokens = hit.count;
    if (source.to_pairs) {
      tile.x += hit.first * tile.x_stride;
      tile.out_pairs = source.hits.pairs + hit.first;
    } else {
      tile.x_pairs = source.hits.pairs + hit.first;
      tile.top_k = source.top_k;
      tile.out += hit.first * tile.out_stride;
    }
  }
  tile.weights = reinterpret_cast<const uint8_t*>(data) + row * tile.row_bytes;
  return tile;
}

// Tile `index` (of tiles_of()) of group `group`, matrix by matrix. The group is among groups_max; if it does
// not exist, what is found means nothing.
template <uint32_t kRows>
__device__ inline ProductTile find_tile(const ProductSource& source, uint32_t group, uint32_t index) {
  HitGroup hit;
  if (source.hits.counts != nullptr) hit = source.hits.groups[group];
  uint32_t m = 0;
  for (; m + 1 < source.matrix_count; ++m) {
    const uint32_t tiles = (source.matrices[m].rows + kRows - 1) / kRows;
    if (index < tiles) break;
    index -= tiles;
  }
  return tile_at(source, hit, source.matrices[m], index * kRows, kRows);
}

}  // namespace strata::gpu_worker::cuda
