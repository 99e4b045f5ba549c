// Many rows of activations: both operands are packed (products_f32_packed.h), then multiplied in tiles of 64
// weight rows and 64 rows of activations, class of lanes after class of lanes. A thread has two lanes of 8 x
// 8 products: 128 sums in registers, four reads of four floats from shared memory for 64 fma of one lane, and
// only 48 shuffles to add lanes. Blocks that would not fill the GPU share the classes among them and leave
// the last additions to a small kernel.

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32_packed.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kRowQuads = 2, kTokenQuads = 2;  // a thread's tile, in groups of four
constexpr uint32_t kLanes = 2;                      // of a thread: the ones 4 apart of a class
constexpr uint32_t kThreadLanes = kClassLanes / kLanes;
constexpr uint32_t kProducts = 16;  // of the tile, what a thread has when lanes are added
constexpr uint32_t kStages = 3;
// With work for more blocks than that on each multiprocessor, blocks have several tiles.
constexpr uint32_t kWaves = 24;
constexpr uint32_t kChunkFloats = kChunkTurns * kTurnFloats;
constexpr uint32_t kStageFloats = 2 * kChunkFloats;
constexpr uint32_t kSavedFloats = kThreads * kProducts;

// What a block keeps while it goes through `classes` classes: sums of 2, 4, .. classes that wait for their
// neighbours. Of a pair of classes the first one waits in registers.
constexpr uint32_t shared_bytes(uint32_t classes) {
  uint32_t floats = kStages * kStageFloats;
  for (uint32_t n = classes; n > 2; n /= 2) floats += kSavedFloats;
  return floats * sizeof(float);
}

struct TileArgs {
  const float* weights = nullptr;  // packed, from first_tile on
  const float* activations = nullptr;
  uint32_t first_tile = 0;                    // of all jobs' weights
  uint32_t first_token = 0, token_count = 0;  // of x; tiles begin at first_token
  uint32_t token_tiles = 0, block_tiles = 1;  // of the launch, and that a block has after each other
  uint32_t chunks = 0;                        // of a class
  uint64_t class_floats = 0;
  uint32_t classes = kClasses;  // of a block
  float* parts = nullptr;       // (kClasses / classes, tokens of all tiles, rows of all tiles) if not all
};

// Where a thread's products are. The order in which it reads its groups of four depends on its lane, so that
// in every step of the tree it keeps the first half of what it has and gives the second to its partner.
// Neighbours in a warp read the same activations, every other one the same weights: only then the hardware
// reads 32 x 16 bytes in two turns instead of four.
struct Place {
  uint32_t rows_of = lane_index() % 2, tokens_of = lane_index() / 2 % 2,
           lane = lane_index() / 4 % kThreadLanes;
  uint32_t row_quad = warp_index() % 4 * 4 + rows_of * kRowQuads;
  uint32_t token_quad = warp_index() / 4 * 8 + (lane_index() / 16 * 2 + tokens_of) * kTokenQuads;

  __device__ uint32_t row_quad_of(uint32_t i) const { return row_quad + (i ^ (lane & 1)); }
  __device__ uint32_t token_quad_of(uint32_t i) const { return token_quad + (i ^ (lane >> 1)); }
};
static_assert(kRowQuads == 2 && kTokenQuads == 2 && kThreadLanes == 4);

using Sums = float[kLanes][kRowQuads][kTokenQuads][4][4];  // row of a group, token of a group

// A turn's operands of one of a thread's lanes.
struct Operands {
  float4 w[kRowQuads], x[kTokenQuads];

  __device__ void load(const float* stage, const Place& place, uint32_t turn, uint32_t lane) {
    const float* from = stage + turn * kTurnFloats;
    const uint32_t class_lane = place.lane + lane * kThreadLanes;
#pragma unroll
    for (uint32_t i = 0; i < kRowQuads; ++i)
      w[i] = *reinterpret_cast<const float4*>(from + packed_place(place.row_quad_of(i), class_lane));
#pragma unroll
    for (uint32_t i = 0; i < kTokenQuads; ++i) {
      x[i] = *reinterpret_cast<const float4*>(from + kChunkFloats +
                                              packed_place(place.token_quad_of(i), class_lane));
    }
  }
  __device__ void add_products(float (&sums)[kRowQuads][kTokenQuads][4][4]) const {
#pragma unroll
    for (uint32_t t = 0; t < kTokenQuads; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < kRowQuads; ++r) {
        const float ws[4] = {w[r].x, w[r].y, w[r].z, w[r].w}, xs[4] = {x[t].x, x[t].y, x[t].z, x[t].w};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
#pragma unroll
          for (uint32_t j = 0; j < 4; ++j) sums[r][t][i][j] = fmaf(ws[i], xs[j], sums[r][t][i][j]);
        }
      }
    }
  }
};

// The tree within the class, lanes 4, 2, 1 apart (32, 16 and 8 of all lanes).
__device__ inline void add_lanes(const Sums& sums, float (&total)[kProducts]) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      float one[kRowQuads];
#pragma unroll
      for (uint32_t r = 0; r < kRowQuads; ++r) {
        const float a = sums[0][r][0][i][j] + sums[1][r][0][i][j];
        const float b = sums[0][r][1][i][j] + sums[1][r][1][i][j];
        one[r] = a + __shfl_xor_sync(kAllLanes, b, 8);
      }
      total[4 * j + i] = one[0] + __shfl_xor_sync(kAllLanes, one[1], 4);
    }
  }
}

// Four products of a token, of rows that follow each other.
__device__ inline void store4(const FloatJobs& jobs, const FloatJob& job, uint64_t token, uint32_t row,
                              const float* total) {
  const uint32_t rows = job.product.matrix.rows;
  float* to = job.product.out + token * job.product.out_stride + row;
  if (row + 4 <= rows && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    *reinterpret_cast<float4*>(to) = {finished(jobs, job, total[0]), finished(jobs, job, total[1]),
                                      finished(jobs, job, total[2]), finished(jobs, job, total[3])};
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (row + i < rows) to[i] = finished(jobs, job, total[i]);
  }
}

__device__ inline void store(const FloatJobs& jobs, const FloatJob& job, const TileArgs& args,
                             const Place& place, uint32_t token_tile, const float (&total)[kProducts]) {
  const uint32_t in_tile = 4 * place.row_quad_of(0), in_tokens = 4 * place.token_quad_of(0);
#pragma unroll
  for (uint32_t t = 0; t < 4; ++t) {
    const uint32_t token = token_tile * kTileRows + in_tokens + t;
    if (args.classes < kClasses) {
      const uint64_t at =
          (uint64_t{blockIdx.z} * args.token_tiles * kTileRows + token) * gridDim.x + blockIdx.x;
      *reinterpret_cast<float4*>(args.parts + at * kTileRows + in_tile) = {
          total[4 * t], total[4 * t + 1], total[4 * t + 2], total[4 * t + 3]};
    } else if (token < args.token_count) {
      const uint32_t row = (args.first_tile + blockIdx.x - job.first_block) * kTileRows + in_tile;
      store4(jobs, job, args.first_token + token, row, total + 4 * t);
    }
  }
}

// Adds what waits to the sums of class number i of the block; what then waits for its neighbour is kept. With
// the last class all are added.
__device__ inline void add_classes(uint32_t i, uint32_t classes, float* saved, float (&waiting)[kProducts],
                                   float (&total)[kProducts]) {
  const auto of_level = [&](uint32_t level, uint32_t t) -> float4& {
    return reinterpret_cast<float4*>(saved)[(level * 4 + t) * kThreads + threadIdx.x];
  };
  if (i % 2 == 0) {
#pragma unroll
    for (uint32_t t = 0; t < kProducts; ++t) waiting[t] = total[t];
    return;
  }
#pragma unroll
  for (uint32_t t = 0; t < kProducts; ++t) total[t] = waiting[t] + total[t];
  uint32_t level = 0;
  for (uint32_t n = i / 2; n % 2 == 1; n /= 2, ++level) {
#pragma unroll
    for (uint32_t t = 0; t < 4; ++t) {
      const float4 before = of_level(level, t);
      total[4 * t] = before.x + total[4 * t];
      total[4 * t + 1] = before.y + total[4 * t + 1];
      total[4 * t + 2] = before.z + total[4 * t + 2];
      total[4 * t + 3] = before.w + total[4 * t + 3];
    }
  }
  if (i + 1 == classes) return;
#pragma unroll
  for (uint32_t t = 0; t < 4; ++t)
    of_level(level, t) = {total[4 * t], total[4 * t + 1], total[4 * t + 2], total[4 * t + 3]};
}

// The chunks of a block on their way into shared memory: first all turns of one class, then the next, then
// the same weights with the next tile of activations.
struct Fetcher {
  const float *weights, *middle, *activations;  // where this thread's next copies begin
  float* stages;
  uint64_t tile_floats;
  uint32_t of_tile;                      // chunks
  uint32_t stage = 0, left, left_tiles;  // the next one to be filled; chunks to come of this tile, and tiles

  __device__ Fetcher(const TileArgs& args, uint32_t tiles, float* stages_in)
      : stages(stages_in + 4 * threadIdx.x),
        tile_floats(kClasses * args.class_floats),
        of_tile(args.classes * args.chunks),
        left(of_tile),
        left_tiles(tiles) {
    static_assert(kChunkFloats == 10 * kThreads && kStageFloats == 5 * 4 * kThreads);
    const uint64_t first = blockIdx.z * args.classes * args.class_floats + 4 * threadIdx.x;
    weights = args.weights + blockIdx.x * tile_floats + first;
    activations = args.activations + blockIdx.y * args.block_tiles * tile_floats + first + 2 * kThreads;
    middle = takes_weights() ? weights + 8 * kThreads : activations - 4 * kThreads;
  }
  __device__ static bool takes_weights() { return threadIdx.x < kThreads / 2; }
  // Always commits, so that the count of commits tells which chunk has arrived.
  __device__ void next() {
    if (left_tiles > 0) {
      float* to = stages + stage * kStageFloats;
      copy16_async(to, weights);
      copy16_async(to + 4 * kThreads, weights + 4 * kThreads);
      copy16_async(to + 8 * kThreads, middle);
      copy16_async(to + 12 * kThreads, activations);
      copy16_async(to + 16 * kThreads, activations + 4 * kThreads);
      weights += kChunkFloats;
      middle += kChunkFloats;
      activations += kChunkFloats;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (--left == 0) next_tile();
    }
    copies_commit();
  }
  __device__ void next_tile() {
    const uint64_t passed = uint64_t{of_tile} * kChunkFloats;
    weights -= passed;
    activations += tile_floats - passed;
    if (takes_weights()) {
      middle -= passed;
    } else {
      middle += tile_floats - passed;
    }
    left = of_tile;
    --left_tiles;
  }
};

// Block (weight tiles, token tiles / block_tiles, groups of classes). The barrier between two chunks stands
// before the last products of the first one: these give the first operands of the second one time to arrive,
// and warps need not add their lanes all at once.
__global__ void __launch_bounds__(kThreads) tile_kernel(FloatJobs jobs, TileArgs args) {
  constexpr uint32_t kSteps = kChunkTurns * kLanes;
  static_assert(kSteps % 2 == 0, "the first operands of every chunk have the same place");
  float* stages = dynamic_shared<float>();
  float* saved = stages + kStages * kStageFloats;
  const FloatJob& job = jobs.of_block(args.first_tile + blockIdx.x);
  const uint32_t first_tile = blockIdx.y * args.block_tiles,
                 end_tile = min(first_tile + args.block_tiles, args.token_tiles);
  Fetcher fetcher(args, end_tile - first_tile, stages);
  for (uint32_t i = 0; i < kStages; ++i) fetcher.next();

  const Place place;
  const uint32_t row = (args.first_tile + blockIdx.x - job.first_block) * kTileRows + warp_index() % 4 * 16;
  float waiting[kProducts] = {};
  Operands operands[2];
  uint32_t stage = 0;
  copies_wait<kStages - 1>();
  __syncthreads();
  operands[0].load(stages, place, 0, 0);
  for (uint32_t tile = first_tile; tile < end_tile; ++tile) {
    // Warps whose products do not exist only help to fetch.
    const bool wanted =
        row < job.product.matrix.rows && tile * kTileRows + warp_index() / 4 * 32 < args.token_count;
    for (uint32_t i = 0; i < args.classes; ++i) {
      Sums sums = {};
      for (uint32_t chunk = 0; chunk < args.chunks; ++chunk) {
        if (wanted) {
          const float* from = stages + stage * kStageFloats;
#pragma unroll
          for (uint32_t step = 0; step + 1 < kSteps; ++step) {
            const uint32_t next = step + 1;
            operands[next % 2].load(from, place, next / kLanes, next % kLanes);
            operands[step % 2].add_products(sums[step % kLanes]);
          }
        }
        copies_wait<kStages - 2>();
        __syncthreads();
        stage = stage + 1 == kStages ? 0 : stage + 1;
        // Behind the last chunk this reads what nobody uses.
        operands[0].load(stages + stage * kStageFloats, place, 0, 0);
        fetcher.next();
        if (wanted) operands[1].add_products(sums[kLanes - 1]);
      }
      if (!wanted) continue;
      float total[kProducts];
      add_lanes(sums, total);
      add_classes(i, args.classes, saved, waiting, total);
      if (i + 1 == args.classes) store(jobs, job, args, place, tile, total);
    }
  }
}

// Block (rows of all tiles / kThreads, tokens): adds the groups of classes of tile_kernel.
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(FloatJobs jobs, TileArgs args, uint32_t rows, uint32_t token_tiles) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= rows) return;
  const FloatJob& job = jobs.of_block(args.first_tile + i / kTileRows);
  const uint32_t row = (args.first_tile - job.first_block) * kTileRows + i;
  if (row >= job.product.matrix.rows) return;
  float part[kClasses];
  const uint32_t groups = kClasses / args.classes;
#pragma unroll
  for (uint32_t g = 0; g < kClasses; ++g) {
    if (g < groups) part[g] = args.parts[(uint64_t{g} * token_tiles * kTileRows + blockIdx.y) * rows + i];
  }
#pragma unroll
  for (uint32_t n = kClasses; n > 1; n /= 2) {
    if (n > groups) continue;
#pragma unroll
    for (uint32_t g = 0; g < n / 2; ++g) part[g] = part[2 * g] + part[2 * g + 1];
  }
  job.product.out[(args.first_token + uint64_t{blockIdx.y}) * job.product.out_stride + row] =
      finished(jobs, job, part[0]);
}

// How a launch goes through the scratch memory.
struct Plan {
  uint32_t weight_tiles = 0, token_tiles = 0;  // at a time
  uint32_t classes = kClasses;                 // of a block
};

uint64_t part_floats(const Plan& plan) {
  if (plan.classes == kClasses) return 0;
  return uint64_t{kClasses / plan.classes} * plan.weight_tiles * plan.token_tiles * kTileRows * kTileRows;
}

Plan make_plan(uint32_t weight_tiles, uint32_t token_tiles, uint32_t cols, FloatScratch scratch) {
  const uint64_t most_parts = std::min(kPartFloats, scratch.floats / 4);
  const auto places = static_cast<uint32_t>(
      std::min<uint64_t>((scratch.floats - most_parts) / packed_tile_floats(cols), 1u << 24));
  if (places < 2) return {};
  Plan plan{.weight_tiles = weight_tiles, .token_tiles = token_tiles};
  if (weight_tiles + token_tiles > places) {
    plan.weight_tiles = std::min(weight_tiles, std::max(places / 2, places - std::min(token_tiles, places)));
    plan.token_tiles = std::min(token_tiles, places - plan.weight_tiles);
  }
  if (shared_bytes(1) > shared_bytes_max()) return {};
  while (shared_bytes(plan.classes) > shared_bytes_max()) plan.classes /= 2;
  // Long rows take a block so long that the last ones should not be alone on the GPU.
  const uint32_t wanted = multiprocessors() * (cols >= 2048 ? 4 : 1);
  const auto blocks = [&] { return plan.weight_tiles * plan.token_tiles * (kClasses / plan.classes); };
  while (plan.classes > 1 && blocks() < wanted) {
    plan.classes /= 2;
    if (part_floats(plan) <= most_parts) continue;
    plan.classes *= 2;
    break;
  }
  while (part_floats(plan) > most_parts && plan.token_tiles > 1) plan.token_tiles /= 2;
  return part_floats(plan) > most_parts ? Plan{} : plan;
}

}  // namespace

bool multiply_f32_many(FloatJobs jobs, FloatRows x, uint32_t rows, FloatScratch scratch,
                       cudaStream_t stream) {
  const uint32_t cols = jobs.jobs[0].product.matrix.cols;
  const PackJobs activations = {.jobs = {{.matrix = {.type = TensorType::kF32,
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .data = reinterpret_cast<const std::byte*>(x.data),
                                                     .row_bytes = x.stride * sizeof(float)}}},
                                .count = 1};
  PackJobs weights = {.jobs = {}, .count = jobs.count};
  uint32_t tiles = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    weights.jobs[i] = {.matrix = jobs.jobs[i].product.matrix, .first_tile = tiles};
    jobs.jobs[i].first_block = tiles;
    tiles += packed_tiles(weights.jobs[i].matrix.rows);
  }
  const uint32_t token_tiles = packed_tiles(rows);
  const Plan plan = make_plan(tiles, token_tiles, cols, scratch);
  if (plan.weight_tiles == 0) return false;

  float* packed_x = scratch.data;
  float* packed_weights = packed_x + plan.token_tiles * packed_tile_floats(cols);
  TileArgs args = {.weights = packed_weights,
                   .activations = packed_x,
                   .first_tile = 0,
                   .first_token = 0,
                   .token_count = 0,
                   .token_tiles = 0,
                   .block_tiles = 1,
                   .chunks = packed_chunks(cols),
                   .class_floats = packed_class_floats(cols),
                   .classes = plan.classes,
                   .parts = packed_weights + plan.weight_tiles * packed_tile_floats(cols)};
  for (uint32_t t = 0; t < token_tiles; t += plan.token_tiles) {
    const uint32_t ts = std::min(plan.token_tiles, token_tiles - t);
    pack(activations, PackAs::kActivations, t, ts, packed_x, stream);
    args.first_token = t * kTileRows;
    args.token_count = std::min(ts * kTileRows, rows - args.first_token);
    args.token_tiles = ts;
    for (uint32_t w = 0; w < tiles; w += plan.weight_tiles) {
      const uint32_t ws = std::min(plan.weight_tiles, tiles - w);
      if (t == 0 || plan.weight_tiles < tiles) pack(weights, PackAs::kWeights, w, ws, packed_weights, stream);
      args.first_tile = w;
      args.block_tiles =
          std::clamp(ws * ts * (kClasses / plan.classes) / (kWaves * multiprocessors()), 1u, ts);
      launch(tile_kernel,
             {.grid = dim3(ws, (ts + args.block_tiles - 1) / args.block_tiles, kClasses / plan.classes),
              .block = kThreads,
              .shared_bytes = shared_bytes(plan.classes)},
             stream, jobs, args);
      if (plan.classes == kClasses) continue;
      const uint32_t padded = ws * kTileRows;
      launch(add_parts_kernel,
             {.grid = dim3((padded + kThreads - 1) / kThreads, args.token_count), .block = kThreads}, stream,
             jobs, args, padded, ts);
    }
  }
  return true;
}

}  // namespace strata::gpu_worker::cuda
