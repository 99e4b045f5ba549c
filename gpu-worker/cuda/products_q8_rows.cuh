#pragma once
// Products for one token (or a few, one after the other), bound by reading the weights. A block asks for all
// bytes of its rows at once, or for those of the first chunks where rows are long; then each thread makes the
// terms of a pair of units, always the same one, whose activations stay in its registers, for one row after
// the other; then one thread for each row takes the terms in their order. Several blocks on a multiprocessor
// are in different phases, so that reading does not pause.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_pair.cuh"
#include "gpu-worker/cuda/products_q8_source.cuh"
#include "gpu-worker/cuda/quantize_block.cuh"

namespace strata::gpu_worker::cuda {

// The 40 pairs of 2560 columns, 4 times; 6144 columns are two chunks of 48.
inline constexpr uint32_t kRowsThreads = 160, kRowPairsMax = 48;
inline constexpr uint32_t kRowStages = 3;

// How a launch is divided into tiles, each of a block.
struct RowsPlan {
  uint32_t pairs = 0;   // of a chunk
  uint32_t chunks = 0;  // of a row
  uint32_t slots = 0;   // rows whose terms are made at the same time
  uint32_t rows = 0;    // of a tile: of its matrix, or half of gate and half of up
  uint32_t tile_ends[kProductJobsMax] = {};

  uint32_t row_pitch = 0, stage_bytes = 0, term_stride = 0;  // bytes
  uint32_t terms_at = 0, x_at = 0;                           // in shared memory
  uint32_t shared_bytes = 0;
};

template <class F>
class RowsProduct {
 public:
  __device__ RowsProduct(const ProductSource& source, const RowsPlan& plan, const HitGroup& hit)
      : source_(source), plan_(plan), shared_(dynamic_shared<uint8_t>()) {
    uint32_t m = 0, begin = 0;
#pragma unroll
    for (uint32_t i = 0; i + 1 < kProductJobsMax;
         ++i) {  // no index that is not constant: plan stays a parameter
      if (i + 1 >= source.matrix_count || blockIdx.x < plan.tile_ends[i]) break;
      m = i + 1;
      begin = plan.tile_ends[i];
    }
    const uint32_t index = blockIdx.x - begin;
    rows_ = source.silu ? plan.rows / 2 : plan.rows;
    tile_ = tile_at(source, hit, source.matrices[m], index * rows_, rows_);
    up_weights_ = tile_.weights;
    if (source.silu) {
      const ProductTile up = tile_at(source, hit, source.matrices[1], index * rows_, rows_);
      up_weights_ = up.weights;
      up_scale_ = up.scale;
    }
  }

  // Weights are written by no kernel: they are asked for before the kernels ahead have ended.
  __device__ void compute() {
    begin_copies();
    await_earlier_kernels();
    for (uint32_t token = 0; token < tile_.tokens; ++token) {
      if (token != 0 && !stays()) begin_copies();
      multiply(token);
    }
  }

 private:
  static constexpr int kTerms = UnitShape<F>::kTerms;
  static constexpr uint32_t kWarps = kRowsThreads / kWarp;

  // Rows that the last tile lacks are computed as its last one again, and not stored.
  __device__ uint32_t row_in_matrix(uint32_t r) const {
    const uint32_t row = r >= rows_ ? r - rows_ : r;
    return row < tile_.row_count ? row : tile_.row_count - 1;
  }
  __device__ const uint8_t* chunk_of_row(uint32_t r, uint32_t chunk) const {
    const uint8_t* weights = r >= rows_ ? up_weights_ : tile_.weights;
    return weights + row_in_matrix(r) * tile_.row_bytes + chunk * chunk_bytes();
  }
  // bytes_before() of that, by arithmetic with 32 bits.
  __device__ uint32_t before_row(uint32_t r, uint32_t chunk) const {
    const uint32_t weights = bytes_before(r >= rows_ ? up_weights_ : tile_.weights);
    return (weights + row_in_matrix(r) * static_cast<uint32_t>(tile_.row_bytes) + chunk * chunk_bytes()) & 15;
  }
  __device__ uint32_t chunk_bytes() const { return 2 * plan_.pairs / F::kUnits * F::kBlockBytes; }
  // Whether all chunks are still there for the next token.
  __device__ bool stays() const { return plan_.chunks <= kRowStages; }
  __device__ uint32_t units_of(uint32_t chunk) const {
    const uint32_t rest = tile_.units - 2 * chunk * plan_.pairs;
    return rest < 2 * plan_.pairs ? rest : 2 * plan_.pairs;
  }
  __device__ const uint8_t* stage_of_row(uint32_t r, uint32_t chunk) const {
    return shared_ + chunk % kRowStages * plan_.stage_bytes + r * plan_.row_pitch;
  }
  __device__ float4* terms_of_row(uint32_t r) const {
    return reinterpret_cast<float4*>(shared_ + plan_.terms_at + r * plan_.term_stride);
  }

  __device__ void copy(uint32_t chunk) const {
    if (chunk < plan_.chunks) {
      const uint32_t bytes = units_of(chunk) / F::kUnits * F::kBlockBytes;
      for (uint32_t r = warp_index(); r < plan_.rows; r += kWarps) {
        const uint8_t* begin = chunk_of_row(r, chunk);
        const uint32_t before = bytes_before(begin);
        auto* to = const_cast<uint8_t*>(stage_of_row(r, chunk));
        for (uint32_t at = 16 * lane_index(); at < before + bytes; at += 16 * kWarp)
          copy16_async(to + at, begin - before + at);
      }
    }
    copies_commit();
  }
  __device__ void begin_copies() const {
    for (uint32_t c = 0; c + 1 < kRowStages; ++c) copy(c);
  }

  __device__ void multiply(uint32_t token) {
    const std::byte* x = source_.x_floats ? quantized_row(token) : tile_.x_row(token);
    float acc = 0.0f;
    for (uint32_t c = 0; c < plan_.chunks; ++c) {
      const uint32_t slot = threadIdx.x / plan_.pairs, pair = threadIdx.x - slot * plan_.pairs;
      const bool takes_part = slot < plan_.slots && 2 * pair < units_of(c);
      ActivationPair activations;
      if (takes_part) {
        activations.load(x, c * plan_.pairs + pair, tile_.units);
        WeightPair<F>::prepare(activations);
      }
      if (token == 0 || !stays()) {
        copy(c + kRowStages - 1);
        copies_wait<kRowStages - 1>();
      }
      __syncthreads();  // the chunk is there, and the terms of the one before are used up
      if (takes_part) {
        for (uint32_t r = slot; r < plan_.rows; r += plan_.slots) make_terms_of(r, c, pair, activations);
      }
      __syncthreads();
      if (threadIdx.x < plan_.rows) add_terms(units_of(c), acc);
    }
    store(token, acc);
  }

  __device__ void make_terms_of(uint32_t r, uint32_t chunk, uint32_t pair, const ActivationPair& x) const {
    WeightPair<F> w;
    w.load(stage_of_row(r, chunk) + before_row(r, chunk), pair);
    float2 first[kTerms], last[kTerms];
    w.terms(x, 0, first);
    w.terms(x, 1, last);
    // A second unit that does not exist adds nothing. (A chain never is at -0, so +0 * +0 leaves it as it
    // is.)
    const bool both = 2 * pair + 1 < units_of(chunk);
    float4* terms = terms_of_row(r) + pair;
#pragma unroll
    for (int i = 0; i < kTerms; ++i)
      terms[i * plan_.pairs] = {first[i].x, first[i].y, both ? last[i].x : 0.0f, both ? last[i].y : 0.0f};
  }

  __device__ void add_terms(uint32_t units, float& acc) const {
    const float4* mine = terms_of_row(threadIdx.x);
#pragma unroll 8
    for (uint32_t pair = 0; pair < (units + 1) / 2; ++pair) {
      float4 both[kTerms];
#pragma unroll
      for (int i = 0; i < kTerms; ++i) both[i] = mine[i * plan_.pairs + pair];
#pragma unroll
      for (int i = 0; i < kTerms; ++i) acc = fmaf(both[i].x, both[i].y, acc);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) acc = fmaf(both[i].z, both[i].w, acc);
    }
  }

  __device__ void store(uint32_t token, float acc) const {
    const uint32_t r = threadIdx.x;
    if (!source_.silu) {
      if (r < tile_.row_count) tile_.out_row(token)[r] = acc * tile_.scale;
      return;
    }
    auto* ups = reinterpret_cast<float*>(shared_ + plan_.terms_at);
    __syncthreads();  // the terms are used up
    if (r >= rows_ && r < 2 * rows_) ups[r - rows_] = acc * up_scale_;
    __syncthreads();
    if (r < tile_.row_count) tile_.out_row(token)[r] = silu_value(acc * tile_.scale) * ups[r];
    __syncthreads();  // before the next token's terms
  }

  // The token's floats, quantized into shared memory: 4 of them a thread.
  __device__ const std::byte* quantized_row(uint32_t token) const {
    auto* to = reinterpret_cast<std::byte*>(shared_ + plan_.x_at);
    const auto* x = reinterpret_cast<const float*>(tile_.x_row(token));
    __syncthreads();  // nobody reads the token before
    const uint32_t blocks = tile_.units, rounds = (blocks + kRowsThreads / 8 - 1) / (kRowsThreads / 8);
    for (uint32_t i = 0; i < rounds; ++i) {
      const uint32_t block = i * (kRowsThreads / 8) + threadIdx.x / 8;
      float4 values = {0.0f, 0.0f, 0.0f, 0.0f};
      if (block < blocks) values = reinterpret_cast<const float4*>(x)[8 * block + threadIdx.x % 8];
      quantize_block<4>({values.x, values.y, values.z, values.w}, block < blocks ? to : nullptr, source_.cols,
                        block);
    }
    __syncthreads();
    return to;
  }

  const ProductSource& source_;
  const RowsPlan& plan_;
  uint8_t* const shared_;
  uint32_t rows_;
  ProductTile tile_;
  const uint8_t* up_weights_;
  float up_scale_ = 1.0f;
};

// How many blocks a multiprocessor is to hold, which bounds their registers.
template <class F>
inline constexpr int kRowsBlocks = F::kBlockValues < 256 || F::kType == TensorType::kQ2_K ? 6 : 4;

// Block (x, y): tile x of group y.
template <class F>
__global__ __launch_bounds__(kRowsThreads, kRowsBlocks<F>) void rows_kernel(const ProductSource source,
                                                                            const RowsPlan plan) {
  const bool grouped = source.hits.counts != nullptr;
  // The groups were written before gate and up began. Those let down begin only when they know that, so that
  // down finds the groups complete and asks for its weights while gate and up are still at work.
  if (grouped && !source.to_pairs) await_earlier_kernels();
  let_next_kernel_begin();
  HitGroup hit;
  if (grouped) {
    // No group is empty: asking for its count, too, has it loaded while the number of groups is awaited.
    hit = source.hits.groups[blockIdx.y];
    if (blockIdx.y >= source.hits.counts->groups || hit.count == 0) return;
  }
  RowsProduct<F>(source, plan, hit).compute();
}

// `kUnits`, `block_bytes` and `terms` of the format.
RowsPlan plan_rows(const ProductLaunch& args, uint32_t block_units, uint32_t block_bytes, uint32_t terms);

template <class F>
void launch_rows(const ProductLaunch& args, cudaStream_t stream) {
  const RowsPlan plan = plan_rows(args, F::kUnits, F::kBlockBytes, UnitShape<F>::kTerms);
  const uint32_t matrices = args.source.silu ? 1 : args.source.matrix_count;
  launch(rows_kernel<F>,
         {.grid = dim3(plan.tile_ends[matrices - 1], args.groups_max),
          .block = dim3(kRowsThreads),
          .shared_bytes = plan.shared_bytes,
          .early = true},
         stream, args.source, plan);
}

}  // namespace strata::gpu_worker::cuda
