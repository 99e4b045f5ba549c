#pragma once
// The chunked form of the delta-net (model-qwen4exp section 6, "Chunked form") for the full chunks of a
// window's prompts. Chunks lie at fixed multiples of kDeltaChunk from the start of a sequence; what lies
// before the first and behind the last one is left to the recurrence.
//
// Two kernels. solve_chunks() does what needs no state, for all chunks at once: with A, P, G as in the
// specification, T = (I + A)^-1 and from it U = T diag(beta) V and W = T diag(beta exp G) K. scan_chunks()
// carries the states through the chunks of each sequence. Between them lies a ChunkScratch for each chunk and
// value head.

#include "gpu-worker/cuda/delta_net_parts.cuh"

namespace strata::gpu_worker::cuda {

// A piece of a stretch's chunks, numbered through all segments; as many as the scratch holds.
struct ChunkRange {
  RowRange stretch;
  uint32_t first = 0, count = 0;
};

void solve_chunks(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream);
void scan_chunks(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream);
// Whether the GPU has the shared memory for the scan's blocks.
bool can_scan_chunks(uint32_t dim);

// A segment's chunks: `count` of them behind its first `skipped` rows. Only prompt rows are read in chunks.
struct SegmentChunks {
  uint32_t skipped = 0, count = 0;

  __device__ explicit SegmentChunks(const SegmentInfo& segment) {
    skipped = (kDeltaChunk - segment.position % kDeltaChunk) % kDeltaChunk;
    if (segment.prompt_rows > skipped) count = (segment.prompt_rows - skipped) / kDeltaChunk;
  }
};

// Chunk number `chunk` of the stretch: its first row.
struct ChunkPlace {
  bool exists = false;
  uint32_t row = 0;

  __device__ ChunkPlace(const WindowView& window, RowRange stretch, uint32_t chunk) {
    for (uint32_t i = 0; i < window.segment_count; ++i) {
      const SegmentInfo segment = part_within(window.segments[i], stretch);
      const SegmentChunks chunks(segment);
      if (chunk < chunks.count) {
        exists = true;
        row = segment.row_begin + chunks.skipped + chunk * kDeltaChunk;
        return;
      }
      chunk -= chunks.count;
    }
  }
};

// What solve_chunks() leaves for a chunk and a value head, in floats. Of P only the tiles of 16 x 16 up to
// the diagonal are written.
template <int kDim>
struct ChunkScratch {
  static constexpr uint32_t kChunk = kDeltaChunk;
  static constexpr uint64_t kFloats = delta_chunk_head_floats(kDim);
  float* u;      // (kChunk, kDim)
  float* w;      // (kChunk, kDim)
  float* p;      // (kChunk, kChunk)
  float* grown;  // (kChunk) exp(G_i): from the state before the chunk to row i
  float* rest;   // (kChunk) exp(G_last - G_i): from row i to the state after the chunk

  // `index` counts from the beginning of the piece.
  __device__ ChunkScratch(const DeltaNetArgs& args, uint32_t index, uint32_t head)
      : u(args.chunk_scratch.data + (uint64_t{index} * args.value_heads + head) * kFloats),
        w(u + kChunk * kDim),
        p(w + kChunk * kDim),
        grown(p + kChunk * kChunk),
        rest(grown + kChunk) {
    static_assert(2 * kChunk * kDim + kChunk * kChunk + 2 * kChunk == kFloats);
  }
};

// Rows of a chunk are tiles of 16; two of the 8 warps of a block share one. Products with triangular matrices
// take longer for later tiles: the two tiles of a scheduler (a warp's number modulo 4) are an early and a
// late one.
inline constexpr uint32_t kChunkWarps = 8, kChunkThreads = kChunkWarps * kWarp;
inline constexpr uint32_t kTile = 16, kChunkTiles = kDeltaChunk / kTile;
struct ChunkWarp {
  uint32_t tile = warp_index() < 4 ? warp_index() / 2 : 5 - warp_index() / 2;
  uint32_t half = warp_index() % 2;
  uint32_t row = tile * kTile;      // the first of the tile
  uint32_t steps = 2 * (tile + 1);  // of 8, up to the diagonal
};

// Asks for the rows of a chunk: kCols floats each, rows `stride` floats apart, into rows of kStagedStride.
template <int kCols, int kStagedStride>
__device__ inline void stage_chunk(float* to, const float* from, uint64_t stride) {
  constexpr uint32_t kPieces = kCols / 4;
  for (uint32_t x = threadIdx.x; x < kDeltaChunk * kPieces; x += kChunkThreads)
    copy16_async(to + x / kPieces * kStagedStride + x % kPieces * 4,
                 from + x / kPieces * stride + x % kPieces * 4);
}

// A pair of neighbours among a lane's results.
__device__ inline void store_pair(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = make_float2(first, second);
}

}  // namespace strata::gpu_worker::cuda
