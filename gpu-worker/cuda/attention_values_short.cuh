#pragma once
// Second launch of attention.cu for windows of few rows: the length of one chain counts. out = by fma over
// all attended tokens may not be split, so a lane owns one value of one head and must never wait for anything
// but its last fma: four warps do nothing else, eight others bring values and weights into shared memory some
// tiles ahead.

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kShortHeads = 4;  // of one block, a warp each
inline constexpr uint32_t kShortBringers = 8;
inline constexpr uint32_t kShortTile = 128;  // tokens
inline constexpr uint32_t kShortThreads = (kShortHeads + kShortBringers) * kWarp;

template <KvFormat kFormat>
inline constexpr uint32_t kShortRowBytes =
    kWarp * kv_value_bytes(kFormat);  // of a token: the block's 32 values
// Tiles of values in shared memory, one in use. 4 clocks a token: two float tiles ahead are 1024 clocks,
// about the memory's latency.
template <KvFormat kFormat>
inline constexpr uint32_t kShortStages = kFormat == KvFormat::kF32 ? 3 : 5;

struct alignas(16) ShortShared {
  float weights[2][kShortHeads][kShortTile];
  float scales[2][kShortTile];  // kQ8
  float lanes[kShortHeads][kSumLanes];
  float largest[kShortHeads];
};
template <KvFormat kFormat>
inline constexpr std::size_t kShortBytes =
    sizeof(ShortShared) + std::size_t{kShortStages<kFormat>} * kShortTile * kShortRowBytes<kFormat>;

// out over the first `count` tokens of a tile.
template <KvFormat kFormat>
__device__ inline float add_short_tile(const std::byte* rows, const float* weights, const float* scales,
                                       uint32_t count, float out) {
  constexpr uint32_t kBytes = kShortRowBytes<kFormat>;
  uint32_t t = 0;
#pragma unroll 4
  for (; t + 4 <= count; t += 4) {
    const float4 weight = *reinterpret_cast<const float4*>(weights + t);
    float4 scale = {};
    if constexpr (kFormat == KvFormat::kQ8) scale = *reinterpret_cast<const float4*>(scales + t);
    out = fmaf(weight.x, kv_value<kFormat>(rows + t * kBytes, lane_index(), scale.x), out);
    out = fmaf(weight.y, kv_value<kFormat>(rows + (t + 1) * kBytes, lane_index(), scale.y), out);
    out = fmaf(weight.z, kv_value<kFormat>(rows + (t + 2) * kBytes, lane_index(), scale.z), out);
    out = fmaf(weight.w, kv_value<kFormat>(rows + (t + 3) * kBytes, lane_index(), scale.w), out);
  }
  for (; t < count; ++t)
    out = fmaf(weights[t], kv_value<kFormat>(rows + t * kBytes, lane_index(), scales[t]), out);
  return out;
}

// Grid: (slices of 32 values, kv heads and splits of 4 heads, rows). Needs d to be a multiple of 16.
template <KvFormat kFormat>
__global__ void __launch_bounds__(kShortThreads)
    attention_values_short_kernel(AttentionArgs args, ScoreTile tile) {
  constexpr uint32_t kStages = kShortStages<kFormat>, kRowBytes = kShortRowBytes<kFormat>;
  constexpr uint32_t kChunks = kRowBytes / 16;  // of a token
  constexpr uint32_t kBringers = kShortBringers * kWarp;
  constexpr uint32_t kCopies = kShortTile * kChunks / kBringers;  // of a thread and tile
  static_assert(kCopies > 0 && kBringers == kShortHeads * kSumLanes);
  let_next_kernel_begin();
  await_earlier_kernels();
  auto& shared = *dynamic_shared<ShortShared>();
  std::byte* stages = dynamic_shared<std::byte>() + sizeof(ShortShared);
  const uint32_t row = tile.first_row + blockIdx.z, dim = args.shape.head_dim;
  const RowInfo info = args.window.rows[row];
  const Attended attended = attended_by(args, row, info.position);
  const HeadSplit split = head_split(args.shape, blockIdx.y, kShortHeads);
  const KvPlace place = kv_place(args, false, info.sequence, split.kv);
  const float* row_scratch = args.scratch + blockIdx.z * tile.row_floats;
  const uint32_t tiles = (attended.count + kShortTile - 1) / kShortTile;
  const uint32_t slice = blockIdx.x * kWarp;  // first value of the block

  // Bringers: thread b copies chunk b % kChunks of tokens b / kChunks, ... of a tile and makes the weights of
  // head b / 64, tokens b % 64, ...: lane b % 64 of the head's sum. Tokens are looked up a tile before they
  // are copied, scales one before they are used.
  const bool brings = warp_index() >= kShortHeads;
  const uint32_t b = brings ? threadIdx.x - kShortHeads * kWarp : 0;
  const uint32_t chunk = b % kChunks;
  const bool has_chunk = slice + chunk * 16 / kv_value_bytes(kFormat) < dim;
  uint32_t tokens[kCopies] = {};
  float scales[kCopies] = {};
  const auto look_up = [&](uint32_t tile_index) {
#pragma unroll
    for (uint32_t c = 0; c < kCopies; ++c)
      tokens[c] =
          attended.token(min(tile_index * kShortTile + (b + c * kBringers) / kChunks, attended.count - 1));
  };
  const auto copy = [&](uint32_t tile_index) {
    if (tile_index < tiles && has_chunk) {
      std::byte* to = stages + tile_index % kStages * kShortTile * kRowBytes;
#pragma unroll
      for (uint32_t c = 0; c < kCopies; ++c) {
        const uint64_t first = uint64_t{tokens[c]} * place.token_stride + place.first + slice;
        copy16_async(to + (b + c * kBringers) * 16,
                     place.values + first * kv_value_bytes(kFormat) + chunk * 16);
      }
    }
    copies_commit();
  };
  const auto fetch_scales = [&](uint32_t tile_index) {
    if constexpr (kFormat == KvFormat::kQ8) {
#pragma unroll
      for (uint32_t c = 0; c < kCopies; ++c) {
        const uint32_t at = min(tile_index * kShortTile + (b + c * kBringers) / kChunks, attended.count - 1);
        if (chunk == 0) scales[c] = place.scales[uint64_t{attended.token(at)} * args.shape.kv_heads];
      }
    }
  };
  float sum = 0.0f;
  const auto make_weights = [&](uint32_t tile_index) {
    const uint32_t h = b / kSumLanes;
    if (tile_index >= tiles) return;
    if constexpr (kFormat == KvFormat::kQ8) {
#pragma unroll
      for (uint32_t c = 0; c < kCopies; ++c) {
        if (chunk == 0) shared.scales[tile_index % 2][(b + c * kBringers) / kChunks] = scales[c];
      }
    }
    if (h >= split.count) return;
    const float* scores =
        row_scratch + uint64_t{split.first + h} * tile.score_stride + tile_index * kShortTile;
    const uint32_t count = min(kShortTile, attended.count - tile_index * kShortTile);
#pragma unroll
    for (uint32_t at = b % kSumLanes; at < kShortTile; at += kSumLanes) {
      if (at >= count) continue;
      const float weight = exp_value(scores[at] - shared.largest[h]);
      shared.weights[tile_index % 2][h][at] = weight;
      sum += weight;
    }
  };

  if (brings) {
    for (uint32_t i = 0; i + 1 < kStages; ++i) {
      look_up(i);
      copy(i);
    }
    look_up(kStages - 1);
    fetch_scales(0);
  } else if (warp_index() < split.count) {
    const float largest =
        largest_score(row_scratch, args.shape, tile, split.first + warp_index(), attended.count);
    if (lane_index() == 0) shared.largest[warp_index()] = largest;
  }
  __syncthreads();
  if (brings) {
    make_weights(0);
    fetch_scales(1);
    copies_wait<kStages - 2>();
  }
  __syncthreads();
  float out = 0.0f;
  for (uint32_t i = 0; i < tiles; ++i) {
    if (brings) {
      copy(i + kStages - 1);
      look_up(i + kStages);
      make_weights(i + 1);
      fetch_scales(i + 2);
      copies_wait<kStages - 2>();
    } else if (warp_index() < split.count) {
      out = add_short_tile<kFormat>(stages + i % kStages * kShortTile * kRowBytes,
                                    shared.weights[i % 2][warp_index()], shared.scales[i % 2],
                                    min(kShortTile, attended.count - i * kShortTile), out);
    }
    __syncthreads();
  }
  if (brings) shared.lanes[b / kSumLanes][b % kSumLanes] = sum;
  __syncthreads();
  if (brings || warp_index() >= split.count) return;
  const float* lanes = shared.lanes[warp_index()];
  const float inverse = 1.0f / total_of_lanes(lanes[lane_index()], lanes[lane_index() + kWarp]);
  finish_value(args, row, split.first + warp_index(), blockIdx.x, slice + lane_index() < dim, out, inverse);
}

}  // namespace strata::gpu_worker::cuda
