#include "gpu-worker/cuda/attention_prepare.h"

#include <algorithm>

#include "gpu-worker/cuda/kv_format.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stretches.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kWarpsPerBlock = 4;

// What the warps of one row do: query heads, key heads, value heads, then indexer heads and one for the
// indexer's key.
__host__ __device__ inline uint32_t warps_per_row(const AttentionShape& shape) {
  return shape.heads + 2 * shape.kv_heads + (shape.block_tokens > 0 ? shape.indexer_heads + 1 : 0);
}

__device__ void copy_head(const float* source, uint32_t dim, float* target) {
#pragma unroll 8
  for (uint32_t i = lane_index(); i < dim; i += kWarp) target[i] = source[i];
}

// What a warp works on, in shared memory: the head, the weights of its norm, and its rotation (2 * pairs
// values at most).
struct HeadStage {
  float* values;
  float* norm;
  float* turn;

  __device__ HeadStage(float* memory, uint32_t dim_max)
      : values(memory), norm(memory + dim_max), turn(memory + 2 * dim_max) {}
};
constexpr uint32_t kStageArrays = 3;

// Loads norm and rotation, and with them the head (null: it is there already): one wait for all.
__device__ void load_stage(const HeadStage& stage, const float* head, uint32_t dim, const float* norm,
                           const float* turn, uint32_t pairs) {
#pragma unroll 8
  for (uint32_t i = lane_index(); i < dim; i += kWarp) {
    const float value = head != nullptr ? head[i] : 0.0f, weight = norm[i],
                angle = i < 2 * pairs ? turn[i] : 0.0f;
    if (head != nullptr) stage.values[i] = value;
    stage.norm[i] = weight;
    stage.turn[i] = angle;
  }
  __syncwarp();
}

// values = rotation of rms(values).
__device__ void norm_and_turn(const HeadStage& stage, uint32_t dim, float eps, uint32_t pairs) {
  float* values = stage.values;
  const float scale = rms_scale(sum_squares_f32(values, dim), dim, eps);
  __syncwarp();
  for (uint32_t i = lane_index(); i < pairs; i += kWarp) {
    const float x = normed(values[i], scale, stage.norm[i]),
                y = normed(values[i + pairs], scale, stage.norm[i + pairs]);
    const float cosine = stage.turn[i], sine = stage.turn[i + pairs];
    values[i] = x * cosine - y * sine;
    values[i + pairs] = y * cosine + x * sine;
  }
  for (uint32_t i = 2 * pairs + lane_index(); i < dim; i += kWarp)
    values[i] = normed(values[i], scale, stage.norm[i]);
  __syncwarp();
}

// The key of the block that ends with `row`, if one does. Raw keys before the stretch are in the cache's
// tail. "Segment" is what of it lies in the stretch. The warp of the segment's first finished block, which is
// the only one that reads that tail, also writes the new one (without a finished block: that of the segment's
// first row); a lane has the same values throughout, so its reads come before its writes.
__device__ void indexer_key(const AttentionPrepareArgs& args, RowRange stretch, const RowInfo& info,
                            uint32_t row, const HeadStage& stage) {
  const uint32_t block = args.shape.block_tokens, dim = args.shape.indexer_dim, pairs = args.shape.rope_pairs;
  const SegmentInfo segment = part_within(args.window.segments[info.segment], stretch);
  const uint32_t index = row - segment.row_begin;
  float* raw = args.cache.raw + info.sequence * args.cache.raw_stride;
  const bool finishes = (info.position + 1) % block == 0;
  if (finishes) {
    for (uint32_t j = lane_index(); j < dim; j += kWarp) {
      float sum = 0.0f;
      for (uint32_t i = 0; i < block; ++i) {
        const uint32_t back = block - 1 - i;
        sum += back <= index ? args.indexer_k.data[(row - back) * args.indexer_k.stride + j]
                             : raw[uint64_t{i} * dim + j];
      }
      stage.values[j] = sum / static_cast<float>(block);
    }
    load_stage(stage, nullptr, dim, args.indexer_k_norm, args.window.block_turns + uint64_t{row} * 2 * pairs,
               pairs);
    norm_and_turn(stage, dim, args.shape.eps, pairs);
    copy_head(
        stage.values, dim,
        args.cache.pooled + info.sequence * args.cache.pooled_stride + uint64_t{info.position / block} * dim);
  }
  const uint32_t first_finished = block - 1 - segment.position % block;
  if (index != (first_finished < segment.row_count ? first_finished : 0)) return;
  const uint32_t end = segment.position + segment.row_count;
  for (uint32_t position = max(end / block * block, segment.position); position < end; ++position) {
    copy_head(args.indexer_k.data + (segment.row_begin + position - segment.position) * args.indexer_k.stride,
              dim, raw + uint64_t{position % block} * dim);
  }
}

__global__ void prepare_kernel(AttentionPrepareArgs args, RowRange stretch) {
  let_next_kernel_begin();
  await_earlier_kernels();
  const AttentionShape& shape = args.shape;
  const uint32_t per_row = warps_per_row(shape);
  const uint32_t item = blockIdx.x * kWarpsPerBlock + warp_index();
  const uint32_t row = stretch.begin + item / per_row;
  if (row >= stretch.end) return;  // whole warps; there is no barrier of the block
  const uint32_t dim_max = max(shape.head_dim, shape.indexer_dim);
  const HeadStage stage(dynamic_shared<float>() + warp_index() * kStageArrays * dim_max, dim_max);
  const RowInfo info = args.window.rows[row];
  const float* turn = args.window.turns + uint64_t{row} * 2 * shape.rope_pairs;
  const uint32_t dim = shape.head_dim, nq = shape.heads, nkv = shape.kv_heads;

  uint32_t head = item % per_row;
  if (head < nq) {
    float* query = args.q.data + row * args.q.stride + uint64_t{head} * 2 * dim;
    load_stage(stage, query, dim, args.q_norm, turn, shape.rope_pairs);
    norm_and_turn(stage, dim, shape.eps, shape.rope_pairs);
    copy_head(stage.values, dim, query);
    return;
  }
  head -= nq;
  if (head < 2 * nkv) {
    const bool is_key = head < nkv;
    head -= is_key ? 0 : nkv;
    const float* source = (is_key ? args.k.data + row * args.k.stride : args.v.data + row * args.v.stride) +
                          uint64_t{head} * dim;
    if (is_key) {
      load_stage(stage, source, dim, args.k_norm, turn, shape.rope_pairs);
      norm_and_turn(stage, dim, shape.eps, shape.rope_pairs);
    } else {
      copy_head(source, dim, stage.values);
      __syncwarp();
    }
    const uint64_t at = uint64_t{info.position} * nkv + head;
    std::byte* values = (is_key ? args.cache.k : args.cache.v) + info.sequence * args.cache.kv_stride;
    float* scales =
        (is_key ? args.cache.k_scales : args.cache.v_scales) + info.sequence * args.cache.scales_stride;
    store_kv_head(args.cache.format, stage.values, dim, values, at * dim, scales + at);
    return;
  }
  head -= 2 * nkv;
  if (head < shape.indexer_heads) {
    float* query = args.indexer_q.data + row * args.indexer_q.stride + uint64_t{head} * shape.indexer_dim;
    load_stage(stage, query, shape.indexer_dim, args.indexer_q_norm, turn, shape.rope_pairs);
    norm_and_turn(stage, shape.indexer_dim, shape.eps, shape.rope_pairs);
    copy_head(stage.values, shape.indexer_dim, query);
    return;
  }
  indexer_key(args, stretch, info, row, stage);
}

}  // namespace

void attention_prepare(const AttentionPrepareArgs& args, cudaStream_t stream, const LayerCaptures& captures) {
  const AttentionShape& shape = args.shape;
  CHECK(args.window.row_count > 0 && shape.heads % shape.kv_heads == 0 &&
        2 * shape.rope_pairs <= shape.head_dim);
  CHECK(shape.block_tokens == 0 || 2 * shape.rope_pairs <= shape.indexer_dim);
  const auto prepare = [&](RowRange stretch) {
    const uint64_t warps = uint64_t{stretch.end - stretch.begin} * warps_per_row(shape);
    launch(prepare_kernel,
           {.grid = dim3(static_cast<uint32_t>((warps + kWarpsPerBlock - 1) / kWarpsPerBlock)),
            .block = dim3(kWarpsPerBlock * kWarp),
            .shared_bytes = std::size_t{kWarpsPerBlock} * kStageArrays *
                            std::max(shape.head_dim, shape.indexer_dim) * sizeof(float),
            .early = true},
           stream, args, stretch);
  };
  // Only the tail changes with every token.
  if (shape.block_tokens == 0) return prepare({.begin = 0, .end = args.window.row_count});
  for_each_stretch(captures.all, args.window.row_count, prepare, [&](const StateCapture& capture) {
    keep_floats(capture.to->layers[captures.layer].raw, args.cache.raw, args.cache.raw_stride,
                uint64_t{shape.block_tokens - 1} * shape.indexer_dim, capture, stream);
  });
}

}  // namespace strata::gpu_worker::cuda
