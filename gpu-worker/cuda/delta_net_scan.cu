// Carries the states of value heads through the chunks of a sequence (delta_net_chunks.cuh): with the state S
// before a chunk,
//   V' = U - W S,   O = diag(exp G) Q S + P V',   S = exp(G_last) S + K^T diag(exp(G_last - G)) V'.
// Columns of S are independent: a block has some of one head. S stays in the registers of its warps, as the
// results of products, and lies in shared memory as an operand of the next chunk's. Products begin with 0 and
// S is added to them, not they to S: tensor cores cut sums off, and the loss would grow from chunk to chunk.

#include "gpu-worker/cuda/delta_net_chunks.cuh"
#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/split_product.cuh"

namespace strata::gpu_worker::cuda {
namespace {

// Row strides whose loads meet no bank twice: 4 banks apart for left operands, 8 for right ones and for K,
// which is read along its rows.
template <int kDim, int kColumns>
struct ScanShared {
  static constexpr uint32_t kLeft = kDim + 4, kKeys = kDim + 8, kPairs = kDeltaChunk + 4,
                            kRight = kColumns + 8;
  // What the state meets first, then what its result meets: while the one is in use, the other is on its way.
  float w[kDeltaChunk * kLeft], q[kDeltaChunk * kLeft];
  float k[kDeltaChunk * kKeys], p[kDeltaChunk * kPairs];
  float state[kDim * kRight];
  float fresh[kDeltaChunk * kRight];  // V'
  float rest[kDeltaChunk * kRight];   // diag(exp(G_last - G)) V'
};

// The warp's part of S: kRowTiles of 16 keys and kColumnTiles of 8 columns.
template <int kDim, int kColumns>
struct StatePart {
  static constexpr uint32_t kRowWarps = kDim < 64 ? kDim / 16 : 4, kColumnWarps = kChunkWarps / kRowWarps;
  static constexpr int kRowTiles = kDim / 16 / kRowWarps, kColumnTiles = kColumns / 8 / kColumnWarps;
  static_assert(kRowTiles > 0 && kColumnTiles > 0);
  uint32_t row = warp_index() % kRowWarps * kRowTiles * 16;
  uint32_t column = warp_index() / kRowWarps * kColumnTiles * 8;
  float values[kRowTiles][kColumnTiles][4];

  // at(key, column, values): the place of a pair of neighbours.
  template <class At>
  __device__ void for_each_pair(At at) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          at(row + 16 * m + result_row(i), column + 8 * n + result_column(i), &values[m][n][i]);
      }
    }
  }
};

// Block (nv * columns of a head / kColumns, segments). Two barriers a chunk.
template <int kDim, int kColumns>
__global__ void __launch_bounds__(kChunkThreads, 1) scan_kernel(DeltaNetArgs args, ChunkRange range) {
  using Shared = ScanShared<kDim, kColumns>;
  using Part = StatePart<kDim, kColumns>;
  constexpr int kTiles = kColumns / 16;  // of 8 columns, of a warp's results
  constexpr uint32_t kSlices = kDim / kColumns;
  const auto segment_of = [&](uint32_t i) { return part_within(args.window.segments[i], range.stretch); };
  const SegmentInfo segment = segment_of(blockIdx.y);
  const SegmentChunks chunks(segment);
  uint32_t number = 0;  // of the segment's first chunk
  for (uint32_t i = 0; i < blockIdx.y; ++i) number += SegmentChunks(segment_of(i)).count;
  const uint32_t begin = max(number, range.first),
                 end = min(number + chunks.count, range.first + range.count);
  if (begin >= end) return;

  auto& shared = *dynamic_shared<Shared>();
  const ChunkWarp warp;
  const uint32_t head = blockIdx.x / kSlices, key_head = head % args.key_heads;
  const uint32_t first_column = blockIdx.x % kSlices * kColumns, warp_column = warp.half * (kColumns / 2);
  const uint32_t channels = channel_count(args), values_of_row = args.value_heads * kDim;
  const auto row_of = [&](uint32_t chunk) {
    return segment.row_begin + chunks.skipped + uint64_t{chunk - number} * kDeltaChunk;
  };
  const auto stage_first = [&](uint32_t chunk) {
    stage_chunk<kDim, Shared::kLeft>(shared.w, ChunkScratch<kDim>(args, chunk - range.first, head).w, kDim);
    stage_chunk<kDim, Shared::kLeft>(shared.q, args.mixed + row_of(chunk) * channels + key_head * kDim,
                                     channels);
    copies_commit();
  };
  const auto stage_second = [&](uint32_t chunk) {
    stage_chunk<kDim, Shared::kKeys>(
        shared.k, args.mixed + row_of(chunk) * channels + (args.key_heads + key_head) * kDim, channels);
    stage_chunk<kDeltaChunk, Shared::kPairs>(shared.p, ChunkScratch<kDim>(args, chunk - range.first, head).p,
                                             kDeltaChunk);
    copies_commit();
  };

  stage_first(begin);
  Part part;
  float* stored =
      args.state + segment.sequence * args.state_stride + uint64_t{head} * kDim * kDim + first_column;
  const auto keep = [&](uint32_t key, uint32_t column, const float* pair) {
    store_pair(shared.state + key * Shared::kRight + column, pair[0], pair[1]);
  };
  part.for_each_pair([&](uint32_t key, uint32_t column, float* pair) {
    load_neighbours<2>(stored + key * kDim + column, pair);
    keep(key, column, pair);
  });

  for (uint32_t chunk = begin; chunk < end; ++chunk) {
    const ChunkScratch<kDim> scratch(args, chunk - range.first, head);
    copies_wait<0>();
    __syncthreads();  // W, Q and S are there, and nobody reads K, P or V' any more
    stage_second(chunk);
    float u[kTiles][4], grown[2], rest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t row = warp.row + result_row(2 * half);
      grown[half] = scratch.grown[row];
      rest[half] = scratch.rest[row];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        load_neighbours<2>(scratch.u + row * kDim + first_column + warp_column + 8 * n + result_column(0),
                           &u[n][2 * half]);
    }
    const float whole = scratch.grown[kDeltaChunk - 1];

    float read[2][kTiles][4] = {};  // W S and Q S
    add_product(
        read, kDim / 8,
        [&](uint32_t which, uint32_t row, uint32_t at) {
          return (which == 0 ? shared.w : shared.q)[(warp.row + row) * Shared::kLeft + at];
        },
        [&](uint32_t at, uint32_t column) {
          return shared.state[at * Shared::kRight + warp_column + column];
        });
    float out[1][kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float first = u[n][i] - read[0][n][i], second = u[n][i + 1] - read[0][n][i + 1];
        const uint32_t at =
            (warp.row + result_row(i)) * Shared::kRight + warp_column + 8 * n + result_column(i);
        store_pair(shared.fresh + at, first, second);
        store_pair(shared.rest + at, rest[i / 2] * first, rest[i / 2] * second);
        out[0][n][i] = grown[i / 2] * read[1][n][i];
        out[0][n][i + 1] = grown[i / 2] * read[1][n][i + 1];
      }
    }
    copies_wait<0>();
    __syncthreads();  // V', K and P are there, and nobody reads W, Q or S any more
    if (chunk + 1 < end) stage_first(chunk + 1);
    add_product(
        out, warp.steps,
        [&](uint32_t, uint32_t row, uint32_t at) { return shared.p[(warp.row + row) * Shared::kPairs + at]; },
        [&](uint32_t at, uint32_t column) {
          return shared.fresh[at * Shared::kRight + warp_column + column];
        });
    float* heads = args.heads + row_of(chunk) * values_of_row + head * kDim + first_column + warp_column;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_pair(heads + uint64_t{warp.row + result_row(i)} * values_of_row + 8 * n + result_column(i),
                   out[0][n][i], out[0][n][i + 1]);
    }
    float added[Part::kRowTiles][Part::kColumnTiles][4] = {};
    add_product(
        added, kDeltaChunk / 8,
        [&](uint32_t tile, uint32_t row, uint32_t at) {
          return shared.k[at * Shared::kKeys + part.row + 16 * tile + row];
        },
        [&](uint32_t at, uint32_t column) {
          return shared.rest[at * Shared::kRight + part.column + column];
        });
#pragma unroll
    for (int m = 0; m < Part::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < Part::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) part.values[m][n][i] = fmaf(whole, part.values[m][n][i], added[m][n][i]);
      }
    }
    part.for_each_pair(keep);
  }
  part.for_each_pair([&](uint32_t key, uint32_t column, const float* pair) {
    store_pair(stored + key * kDim + column, pair[0], pair[1]);
  });
}

// A head's columns in one block read W, Q and K once, in two blocks each for itself; shared memory decides.
// 64 of 128: 96 blocks of the real model's 48 heads, one for each multiprocessor that has 190 KiB.
template <int kDim, int kColumns>
bool fits() {
  return sizeof(ScanShared<kDim, kColumns>) <= block_shared_bytes();
}

template <int kDim, int kColumns>
void launch_scan(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream) {
  launch(scan_kernel<kDim, kColumns>,
         {.grid = dim3(args.value_heads * (kDim / kColumns), args.window.segment_count),
          .block = kChunkThreads,
          .shared_bytes = sizeof(ScanShared<kDim, kColumns>)},
         stream, args, range);
}

}  // namespace

bool can_scan_chunks(uint32_t dim) {
  bool can = false;
  with_head_size(dim, [&](auto size) { can = fits<size(), 32>(); });
  return can;
}

void scan_chunks(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream) {
  with_head_size(args.dim, [&](auto dim) {
    if constexpr (dim() >= 64) {
      if (fits<dim(), 64>()) return launch_scan<dim(), 64>(args, range, stream);
    }
    launch_scan<dim(), 32>(args, range, stream);
  });
}

}  // namespace strata::gpu_worker::cuda
