#pragma once
// Products for few tokens, bound by reading the weights. A block is one warp, which works on 4 rows: it
// copies them to shared memory in chunks of 32 units, several chunks ahead, with 16 bytes a lane; then lane u
// makes the terms of unit u for all rows and tokens; then one lane for each row and token takes them in their
// order. The terms go through shared memory, in rows whose length avoids bank conflicts on both sides.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_source.cuh"
#include "gpu-worker/cuda/products_q8_unit.cuh"

namespace strata::gpu_worker::cuda {

template <class F, int kTokens>
struct WindowShape {
  static constexpr int kChunkUnits = 32;
  static constexpr int kChunkBytes = kChunkUnits / F::kUnits * F::kBlockBytes;
  static constexpr int kRows = 4;
  static_assert(kRows * kTokens <= static_cast<int>(kWarp), "a lane for each row and token");
  static constexpr int kPitch = (kChunkBytes + 30) / 16 * 16;  // aligned outwards on both sides
  // 2560 columns are three chunks: all of a row's bytes are on their way at once.
  static constexpr int kStages = 3;
  static constexpr int kStageBytes = kRows * kPitch;
  static constexpr int kTerms = UnitShape<F>::kTerms;
  static constexpr int kTermStride = kTerms * kChunkUnits + 2;
  static constexpr int kTermBytes = kRows * kTokens * kTermStride * 8;
};

// Some tokens of a tile, by one warp.
template <class F, int kTokens>
class WindowProduct {
 public:
  __device__ WindowProduct(const ProductTile& tile, uint32_t first_token, uint8_t* shared)
      : tile_(tile),
        terms_(reinterpret_cast<float2*>(shared)),
        stages_(shared + Shape::kTermBytes),
        first_token_(first_token),
        tokens_(tile.tokens - first_token < kTokens ? tile.tokens - first_token : kTokens) {}

  __device__ void compute() {
    const uint32_t chunks = (tile_.units + Shape::kChunkUnits - 1) / Shape::kChunkUnits;
#pragma unroll
    for (uint32_t c = 0; c + 1 < Shape::kStages; ++c) {
      if (c < chunks) copy(c, c);
      copies_commit();
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) x_rows_[t] = tile_.x_row(first_token_ + (t < tokens_ ? t : 0));

    uint32_t stage = 0;
    for (uint32_t c = 0; c < chunks; ++c) {
      const uint32_t unit = c * Shape::kChunkUnits + lane_index();
      ActivationUnit x = {};
      if (unit < tile_.units) x.load(x_rows_[0], unit, tile_.units);

      const uint32_t ahead = c + Shape::kStages - 1;
      if (ahead < chunks) copy(ahead, stage == 0 ? Shape::kStages - 1 : stage - 1);
      copies_commit();
      copies_wait<Shape::kStages - 1>();
      __syncwarp();
      if (unit < tile_.units) {
        make_terms_of(c, stage, unit, x);
      } else {
        clear_terms();
      }
      __syncwarp();
      add_terms(c);
      __syncwarp();
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    }
    const uint32_t row = lane_index() / kTokens, token = lane_index() % kTokens;
    if (row < tile_.row_count && token < tokens_)
      tile_.out_row(first_token_ + token)[row] = acc_ * tile_.scale;
  }

 private:
  using Shape = WindowShape<F, kTokens>;
  static constexpr uint32_t kRows = Shape::kRows;

  // Rows that the last tile lacks are computed as its last one again, and not stored: straight code for all.
  __device__ const uint8_t* chunk_of_row(uint32_t r, uint32_t chunk) const {
    const uint32_t row = r < tile_.row_count ? r : tile_.row_count - 1;
    return tile_.weights + row * tile_.row_bytes + uint64_t{chunk} * Shape::kChunkBytes;
  }

  __device__ void copy(uint32_t chunk, uint32_t stage) const {
    const uint32_t rest = (tile_.units - chunk * Shape::kChunkUnits) / F::kUnits * F::kBlockBytes;
    const uint32_t bytes = rest < Shape::kChunkBytes ? rest : uint32_t{Shape::kChunkBytes};
    uint8_t* to = stages_ + stage * Shape::kStageBytes;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint8_t* begin = chunk_of_row(r, chunk);
      const uint32_t before = bytes_before(begin);
#pragma unroll
      for (uint32_t first = 0; first < Shape::kPitch; first += 16 * kWarp) {
        const uint32_t at = first + 16 * lane_index();
        if (at < before + bytes) copy16_async(to + r * Shape::kPitch + at, begin - before + at);
      }
    }
  }

  __device__ void load_weights_of(WeightUnit<F>& w, uint32_t r, uint32_t chunk, uint32_t stage) const {
    const uint32_t lane = lane_index();
    const uint8_t* blocks =
        stages_ + stage * Shape::kStageBytes + r * Shape::kPitch + bytes_before(chunk_of_row(r, chunk));
    const uint8_t* block = blocks + lane / F::kUnits * F::kBlockBytes;
    w.load(block, static_cast<int>(lane % F::kUnits));
  }

  __device__ float2& term(uint32_t r, uint32_t t, int i) const {
    return terms_[(r * kTokens + t) * Shape::kTermStride + i * Shape::kChunkUnits + lane_index()];
  }
  __device__ void store_terms(const WeightUnit<F>& w, const ActivationUnit& x, int first_sum, uint32_t r,
                              uint32_t t) const {
    float2 made[Shape::kTerms];
    make_terms<F>(w, x, first_sum, made);
#pragma unroll
    for (int i = 0; i < Shape::kTerms; ++i) term(r, t, i) = made[i];
  }

  // The terms of the lane's unit. x: of the first token; each next one is loaded while the one before is
  // used.
  __device__ void make_terms_of(uint32_t chunk, uint32_t stage, uint32_t unit, ActivationUnit& x) const {
    WeightUnit<F> w[kRows];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) load_weights_of(w[r], r, chunk, stage);
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      if (t >= tokens_) break;
      ActivationUnit next = x;
      if (t + 1 < kTokens && t + 1 < tokens_)
        next.load(x_rows_[t + 1 < kTokens ? t + 1 : t], unit, tile_.units);
      const int first_sum = kNeedsFirstSum<F> ? x.first_sum() : 0;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) store_terms(w[r], x, first_sum, r, t);
      x = next;
    }
  }
  // Of a unit that does not exist: nothing is added. (A chain never is at -0, so +0 * +0 leaves it as it is.)
  __device__ void clear_terms() const {
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
      for (uint32_t t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int i = 0; i < Shape::kTerms; ++i) term(r, t, i) = {0.0f, 0.0f};
      }
    }
  }

  // Lane r * kTokens + t continues the chain of row r and token t, eight units at a time.
  __device__ void add_terms(uint32_t chunk) {
    if (lane_index() >= kRows * kTokens) return;
    const uint32_t rest = tile_.units - chunk * Shape::kChunkUnits;
    const uint32_t count = rest < Shape::kChunkUnits ? rest : Shape::kChunkUnits;
    const float2* mine = terms_ + lane_index() * Shape::kTermStride;
    for (uint32_t first = 0; first < count; first += 8) {
#pragma unroll
      for (uint32_t u = 0; u < 8; u += 2) {
        float4 both[Shape::kTerms];  // of two units
#pragma unroll
        for (int i = 0; i < Shape::kTerms; ++i)
          both[i] = *reinterpret_cast<const float4*>(mine + i * Shape::kChunkUnits + first + u);
#pragma unroll
        for (int i = 0; i < Shape::kTerms; ++i) acc_ = fmaf(both[i].x, both[i].y, acc_);
#pragma unroll
        for (int i = 0; i < Shape::kTerms; ++i) acc_ = fmaf(both[i].z, both[i].w, acc_);
      }
    }
  }

  const ProductTile& tile_;
  float2* const terms_;
  uint8_t* const stages_;
  const uint32_t first_token_, tokens_;
  const std::byte* x_rows_[kTokens];
  float acc_ = 0.0f;
};

// Block (x, y, z): tile x of group y; every gridDim.z-th kTokens tokens.
template <class F, int kTokens>
__global__ __launch_bounds__(kWarp, 16) void window_kernel(const ProductSource source) {
  const ProductTile tile = find_tile<WindowShape<F, kTokens>::kRows>(source, blockIdx.y, blockIdx.x);
  if (source.hits.counts != nullptr && blockIdx.y >= source.hits.counts->groups) return;
  for (uint32_t first = blockIdx.z * kTokens; first < tile.tokens; first += gridDim.z * kTokens)
    WindowProduct<F, kTokens>(tile, first, dynamic_shared<uint8_t>()).compute();
}

template <class F, int kTokens>
void launch_window(const ProductLaunch& args, cudaStream_t stream) {
  using Shape = WindowShape<F, kTokens>;
  const uint32_t tiles = tiles_of<Shape::kRows>(args.source);
  const uint32_t token_tiles = (args.source.tokens + kTokens - 1) / kTokens;
  // Where there are tiles enough, a warp takes all tokens, one kTokens after the other: its weights then come
  // from the cache. Groups have few tokens anyway.
  constexpr uint32_t kTilesEnough = 4096;
  const uint32_t chunks = (args.source.cols / 32 + Shape::kChunkUnits - 1) / Shape::kChunkUnits;
  const uint32_t stages = chunks < Shape::kStages ? chunks : uint32_t{Shape::kStages};
  const bool apart = args.source.hits.counts == nullptr && tiles < kTilesEnough;
  launch(window_kernel<F, kTokens>,
         {.grid = dim3(tiles, args.groups_max, apart ? token_tiles : 1),
          .block = dim3(kWarp),
          .shared_bytes = Shape::kTermBytes + stages * Shape::kStageBytes},
         stream, args.source);
}

}  // namespace strata::gpu_worker::cuda
