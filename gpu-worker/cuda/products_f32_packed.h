#pragma once
// Matrices of products of many rows as the tile kernel reads them: both weights and activations are first
// written anew, as floats, in the order in which a block of that kernel consumes them.
//
// The 64 lanes of a sum fall into 8 classes, lane % 8. The first three steps of the tree (32, 16, 8) stay
// within a class, the last three add classes: so a class can be summed up alone. That divides the
// activations and weights that a multiprocessor has to read, since its registers hold only an eighth of the
// lanes of eight times as many products.

#include <cstdint>

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// Products of that many rows of activations are worth it.
inline constexpr uint32_t kManyRows = 17;

inline constexpr uint32_t kClasses = 8;                           // lanes l of one class: l % kClasses
inline constexpr uint32_t kClassLanes = 8;                        // lanes of a class
inline constexpr uint32_t kTurnColumns = 64;                      // a turn gives every lane one value
inline constexpr uint32_t kTileRows = 64;                         // of a matrix, weights or activations
inline constexpr uint32_t kTurnFloats = kTileRows * kClassLanes;  // of one class of a tile
// Turns between two barriers. The widths of the real model are multiples of 5 turns: 320, 2560, 10240.
inline constexpr uint32_t kChunkTurns = 5;
inline constexpr uint32_t kChunkColumns = kChunkTurns * kTurnColumns;

// Packed: (tiles, class in the order of class_of, turn, rows / 4, class lanes, 4 rows), the class lanes as
// packed_place says. Turns are filled up to whole chunks, rows to whole tiles.
__host__ __device__ constexpr uint32_t packed_tiles(uint32_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
__host__ __device__ constexpr uint32_t packed_chunks(uint32_t cols) {
  return (cols + kChunkColumns - 1) / kChunkColumns;
}
__host__ __device__ constexpr uint64_t packed_class_floats(uint32_t cols) {
  return uint64_t{packed_chunks(cols)} * kChunkTurns * kTurnFloats;
}
__host__ __device__ constexpr uint64_t packed_tile_floats(uint32_t cols) {
  return kClasses * packed_class_floats(cols);
}

// The class with number i, and back: neighbours are added first, then neighbours of the sums, as the tree
// does it.
__host__ __device__ constexpr uint32_t class_of(uint32_t i) { return i % 2 * 4 + i / 2 % 2 * 2 + i / 4; }
static_assert(class_of(1) == 4 && class_of(2) == 2 && class_of(6) == 3 && class_of(class_of(3)) == 3);

// Where four rows of a lane begin within a turn. Every other pair of fours has its class lanes the other way
// round, so that four lanes of both pairs together meet all banks of shared memory.
__host__ __device__ constexpr uint32_t packed_place(uint32_t row_quad, uint32_t class_lane) {
  return (row_quad * kClassLanes + (class_lane ^ row_quad % 4 / 2 * (kClassLanes / 2))) * 4;
}

// Matrices to be packed behind each other; tiles are counted over all of them.
struct PackJob {
  DeviceMatrix matrix;
  uint32_t first_tile = 0;
};
struct PackJobs {
  PackJob jobs[kProductJobsMax];
  uint32_t count = 0;

  __host__ __device__ const PackJob& of_tile(uint32_t tile) const {
    uint32_t i = 0;
    while (i + 1 < count && jobs[i + 1].first_tile <= tile) ++i;
    return jobs[i];
  }
};

// Columns that fill up a row multiply to -0, which changes no sum: weights get -0 there, activations +0.
enum class PackAs : uint8_t { kWeights, kActivations };

// Packs `tiles` tiles from first_tile on, each as float32, to `to` (tiles, packed_tile_floats(cols)).
void pack(const PackJobs& jobs, PackAs as, uint32_t first_tile, uint32_t tiles, float* to,
          cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
