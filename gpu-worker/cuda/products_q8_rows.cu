// How the products of products_q8_rows.cuh are divided among blocks.

#include "gpu-worker/cuda/products_q8_rows.cuh"

#include <algorithm>

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/products_q8_source.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// Several blocks of that size are on a multiprocessor at once, so many by their registers.
constexpr uint32_t kSharedBytes = 45 * 1024;
constexpr uint32_t kBlocksAtOnce = 5;
constexpr uint32_t kSharedBytesReserved = 1024;  // of each block, by the GPU
constexpr uint32_t kRowsMax = 64;

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// The tiles of a group; of gate and up together if source.silu.
uint32_t count_tiles(const ProductSource& source, RowsPlan& plan) {
  const uint32_t rows = source.silu ? plan.rows / 2 : plan.rows;
  uint32_t tiles = 0;
  for (uint32_t m = 0; m < (source.silu ? 1 : source.matrix_count); ++m) {
    tiles += ceil_div(source.matrices[m].rows, rows);
    plan.tile_ends[m] = tiles;
  }
  return tiles;
}

}  // namespace

RowsPlan plan_rows(const ProductLaunch& args, uint32_t block_units, uint32_t block_bytes, uint32_t terms) {
  const ProductSource& source = args.source;
  CHECK(!source.silu || (source.matrix_count == 2 && source.matrices[0].rows == source.matrices[1].rows),
        "gate and up of {} and {} rows", source.matrices[0].rows, source.matrices[1].rows);
  RowsPlan plan;
  const uint32_t pairs = ceil_div(source.cols, 64);
  const uint32_t block_pairs = std::max(block_units / 2, 1u);
  plan.chunks = ceil_div(pairs, kRowPairsMax);
  plan.pairs = ceil_div(ceil_div(pairs, plan.chunks), block_pairs) * block_pairs;
  plan.chunks = ceil_div(pairs, plan.pairs);
  plan.slots = std::min(kRowsThreads / plan.pairs, kRowsMax / 2);
  if (source.silu && plan.slots % 2 != 0) plan.slots = std::max(plan.slots - 1, 1u);
  plan.row_pitch = (2 * plan.pairs / block_units * block_bytes + block_bytes + 30) / 16 * 16;
  plan.term_stride = 16 * (terms * plan.pairs | 1);
  const uint32_t stages = std::min(plan.chunks, kRowStages);
  const uint32_t x_bytes = source.x_floats ? source.cols + source.cols / 32 * 8 : 0;
  const uint32_t row_bytes = stages * plan.row_pitch + plan.term_stride;

  // As many rounds of `slots` rows as take the least time: the busiest multiprocessor's instructions, and how
  // long one block takes from its data to its end, both in rounds of a block. What a block does beside them
  // is worth 1.5 rounds; a round that has the multiprocessor for itself takes twice as long as where others
  // fill its gaps. Blocks that find no place at first ask for their weights when others have ended.
  const uint32_t step = source.silu && plan.slots % 2 != 0 ? 2 * plan.slots : plan.slots;
  float least = 0.0f;
  for (uint32_t rows = step; rows == step || (rows <= kRowsMax && rows * row_bytes <= kSharedBytes);
       rows += step) {
    RowsPlan other = plan;
    other.rows = rows;
    const uint32_t tiles = count_tiles(source, other) * args.groups_max;
    const uint32_t at_once =
        std::min(kBlocksAtOnce, block_shared_bytes() / (rows * row_bytes + x_bytes + kSharedBytesReserved));
    const auto rounds = static_cast<float>(rows / plan.slots);
    const float time = static_cast<float>(ceil_div(tiles, multiprocessors())) * (rounds + 1.5f) +
                       2.0f * (rounds + 2.0f) + (tiles > multiprocessors() * at_once ? 4.0f : 0.0f);
    if (plan.rows == 0 || time < least) {
      plan.rows = rows;
      least = time;
    }
  }
  count_tiles(source, plan);
  plan.stage_bytes = plan.rows * plan.row_pitch;
  plan.terms_at = stages * plan.stage_bytes;
  plan.x_at = plan.terms_at + plan.rows * plan.term_stride;
  plan.shared_bytes = plan.x_at + x_bytes;
  return plan;
}

}  // namespace strata::gpu_worker::cuda
