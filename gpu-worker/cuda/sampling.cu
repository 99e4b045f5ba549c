#include "gpu-worker/cuda/sampling.h"

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/radix_select.cuh"
#include "gpu-worker/cuda/sampling_draw.cuh"
#include "gpu-worker/cuda/sampling_scratch.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kScanThreads = 256;
constexpr uint32_t kFinishThreads = 1024;
static_assert(kFinishThreads >= kSampleTopKMax);

struct RowScratch {
  ChunkSummary* summaries;
  uint64_t* candidates;
  uint64_t* top;
};
__device__ RowScratch row_scratch(const SampleArgs& args, uint32_t row) {
  const uint32_t chunks = sample_chunks(args.vocab);
  auto* summaries =
      reinterpret_cast<ChunkSummary*>(args.scratch + row * sample_row_scratch_bytes(args.vocab));
  auto* candidates = reinterpret_cast<uint64_t*>(summaries + chunks);
  return {summaries, candidates, candidates + uint64_t{chunks} * kSampleTopKMax};
}

// A block's values reduced to one, which thread 0 gets. Begins and ends with a barrier.
template <class T, class Op>
__device__ T reduce_block(T value, T* totals, Op op) {
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) value = op(value, __shfl_xor_sync(kAllLanes, value, s));
  __syncthreads();
  if (lane_index() == 0) totals[warp_index()] = value;
  __syncthreads();
  for (uint32_t w = 1; threadIdx.x == 0 && w < blockDim.x / kWarp; ++w) value = op(value, totals[w]);
  return value;
}
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};
struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Both {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a & b; }
};

union Totals {
  uint64_t keys[kWarp];
  double sums[kWarp];
  float values[kWarp];
  uint32_t flags[kWarp];
};

// The `count` first tokens of a chunk in no order of value; places without a token: 0.
__device__ void first_of_chunk(const float* values, uint32_t tokens, uint32_t first_token, uint32_t count,
                               RadixShared& radix, uint64_t* out) {
  for (uint32_t i = tokens + threadIdx.x; i < count; i += blockDim.x) out[i] = 0;
  select_largest(
      tokens, min(count, tokens), radix, [&](uint32_t i) { return ordered_bits(values[i]); },
      [&](uint32_t place, uint32_t i) { out[place] = token_key(values[i], first_token + i); });
}

__device__ bool wants_candidates(const SampleRow& request) {
  return request.temperature > 0 && request.top_k > 0;
}

// Grid: (chunks, rows).
__global__ void __launch_bounds__(kScanThreads) scan_kernel(SampleArgs args) {
  __shared__ float original[kSampleChunk], changed[kSampleChunk];
  __shared__ uint32_t mask[kSampleChunk / 32];
  __shared__ RadixShared radix;
  __shared__ Totals totals;
  const SampleRow request = args.requests[blockIdx.y];
  const float* logits = args.logits + uint64_t{blockIdx.y} * args.vocab;
  const RowScratch scratch = row_scratch(args, blockIdx.y);
  const uint32_t begin = blockIdx.x * kSampleChunk, tokens = min(kSampleChunk, args.vocab - begin);

  // First of all: they may come from the host's memory.
  const uint32_t words = sample_mask_words(args.vocab), first_word = begin / 32;
  for (uint32_t w = threadIdx.x; request.masked != 0 && w < min(kSampleChunk / 32, words - first_word);
       w += blockDim.x)
    mask[w] = args.masks[uint64_t{blockIdx.y} * words + first_word + w];

  const float first = logits[0];
  float largest = -__builtin_inff();
  uint32_t all_finite = 1, differ = 0;
  for (uint32_t i = threadIdx.x; i < tokens; i += blockDim.x) {
    const float logit = logits[begin + i];
    original[i] = changed[i] = logit;
    all_finite &= (bits_of_float(logit) & 0x7f800000u) != 0x7f800000u ? 1 : 0;
    differ |= logit != first ? 1 : 0;
    largest = logit > largest ? logit : largest;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < request.change_count; i += blockDim.x) {
    const LogitChange change = args.changes[request.change_begin + i];
    const auto at = static_cast<uint32_t>(change.token) - begin;
    if (at < tokens) changed[at] = changed_logit(changed[at], change);
  }
  __syncthreads();
  uint64_t best = 0;
  for (uint32_t i = threadIdx.x; i < tokens; i += blockDim.x) {
    if (request.masked != 0 && (mask[i / 32] >> (i % 32) & 1u) == 0) {
      changed[i] = -__builtin_inff();
    } else {
      best = Larger{}(best, best_key(changed[i], begin + i));
    }
  }

  ChunkSummary summary;
  summary.best = reduce_block(best, totals.keys, Larger{});
  summary.all_finite = reduce_block(all_finite, totals.flags, Both{});
  summary.differ = reduce_block(differ, totals.flags, Larger{});
  summary.largest = reduce_block(largest, totals.values, Larger{});
  if (request.wants_logprobs != 0) {
    __syncthreads();
    if (threadIdx.x == 0) totals.values[0] = summary.largest;
    __syncthreads();
    const float of_chunk = totals.values[0];
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < tokens; i += blockDim.x) sum += exp_value(original[i] - of_chunk);
    summary.sum = reduce_block(sum, totals.sums, Sum{});
    if (request.top_logprobs > 0)
      first_of_chunk(original, tokens, begin, request.top_logprobs, radix,
                     scratch.top + uint64_t{blockIdx.x} * request.top_logprobs);
  }
  if (threadIdx.x == 0) scratch.summaries[blockIdx.x] = summary;
  if (wants_candidates(request))
    first_of_chunk(changed, tokens, begin, request.top_k, radix,
                   scratch.candidates + uint64_t{blockIdx.x} * request.top_k);
}

struct FinishShared {
  RadixShared radix;
  Totals totals;
  uint64_t picked[kSampleTopKMax];
  uint64_t ordered[kSampleTopKMax];  // falling: falling logit, equal ones by rising id
  float weights[kSampleTopKMax];
  uint64_t best;
  uint32_t usable;
};

// The `count` largest of all chunks' candidates into `ordered`; places without a token: 0.
__device__ void order_candidates(const uint64_t* candidates, uint32_t chunks, uint32_t count,
                                 FinishShared& shared) {
  const uint32_t n = chunks * count;
  select_largest(
      n, count, shared.radix, [&](uint32_t i) { return static_cast<uint32_t>(candidates[i] >> 32); },
      [&](uint32_t place, uint32_t i) { shared.picked[place] = candidates[i]; });
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const uint64_t key = shared.picked[i];
    uint32_t place = 0;  // equal keys, which are all 0, keep their order
    for (uint32_t j = 0; j < count; ++j)
      place += shared.picked[j] > key || (shared.picked[j] == key && j < i) ? 1 : 0;
    shared.ordered[place] = key;
  }
  __syncthreads();
}

__device__ void fill_logprobs(const SampleArgs& args, const SampleRow& request, const RowScratch& scratch,
                              const float* logits, FinishShared& shared, int32_t chosen) {
  const uint32_t chunks = sample_chunks(args.vocab), thread = threadIdx.x;
  SampleResult& result = args.results[blockIdx.x];
  float largest = -__builtin_inff();
  for (uint32_t c = thread; c < chunks; c += blockDim.x)
    largest = Larger{}(largest, scratch.summaries[c].largest);
  largest = reduce_block(largest, shared.totals.values, Larger{});
  __syncthreads();
  if (thread == 0) shared.totals.values[0] = largest;
  __syncthreads();
  largest = shared.totals.values[0];
  double sum = 0;
  for (uint32_t c = thread; c < chunks; c += blockDim.x)
    sum += scratch.summaries[c].sum *
           exp(static_cast<double>(scratch.summaries[c].largest) - static_cast<double>(largest));
  sum = reduce_block(sum, shared.totals.sums, Sum{});
  __syncthreads();
  if (thread == 0) shared.totals.sums[0] = static_cast<double>(largest) + log(sum);
  __syncthreads();
  const double log_sum = shared.totals.sums[0];
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  if (thread == 0) {
    result.logprob = logprob(logits[chosen]);
    result.top_count = min(request.top_logprobs, args.vocab);
  }
  if (request.top_logprobs == 0) return;
  order_candidates(scratch.top, chunks, request.top_logprobs, shared);
  if (thread < min(request.top_logprobs, args.vocab)) {
    const int32_t id = token_of_key(shared.ordered[thread]);
    result.top_ids[thread] = id;
    result.top_logprobs[thread] = logprob(logits[id]);
  }
}

// Grid: (rows).
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(SampleArgs args) {
  __shared__ FinishShared shared;
  const SampleRow request = args.requests[blockIdx.x];
  const RowScratch scratch = row_scratch(args, blockIdx.x);
  const uint32_t chunks = sample_chunks(args.vocab), thread = threadIdx.x;
  uint64_t best = 0;
  uint32_t all_finite = 1, differ = args.vocab == 1 ? 1 : 0;
  for (uint32_t c = thread; c < chunks; c += blockDim.x) {
    const ChunkSummary& summary = scratch.summaries[c];
    best = Larger{}(best, summary.best);
    all_finite &= summary.all_finite;
    differ |= summary.differ;
  }
  best = reduce_block(best, shared.totals.keys, Larger{});
  all_finite = reduce_block(all_finite, shared.totals.flags, Both{});
  differ = reduce_block(differ, shared.totals.flags, Larger{});
  if (thread == 0) {
    shared.best = best;
    shared.usable = all_finite & differ;
  }
  __syncthreads();
  SampleResult& result = args.results[blockIdx.x];
  if (thread == 0) {
    result.usable = shared.usable;
    result.logprob = 0;
    result.top_count = 0;
    result.id = shared.usable != 0 ? token_of_key(shared.best) : -1;
  }
  if (shared.usable == 0) return;  // the whole block
  int32_t chosen = token_of_key(shared.best);
  const float largest = value_of_key(shared.best);
  const bool finite = (bits_of_float(largest) & 0x7f800000u) != 0x7f800000u;
  if (wants_candidates(request) && finite) {
    order_candidates(scratch.candidates, chunks, request.top_k, shared);
    for (uint32_t i = thread; i < request.top_k; i += blockDim.x)
      shared.weights[i] = candidate_weight(shared.ordered[i], largest, request.temperature);
    __syncthreads();
    if (thread == 0) {
      uint32_t count = request.top_k;
      while (count > 0 && shared.ordered[count - 1] == 0) --count;
      result.id = draw_ordered(shared.ordered, shared.weights, count, request, chosen);
      shared.ordered[0] = static_cast<uint64_t>(static_cast<uint32_t>(result.id));
    }
    __syncthreads();
    chosen = static_cast<int32_t>(shared.ordered[0]);
    __syncthreads();
  }
  if (request.wants_logprobs != 0)
    fill_logprobs(args, request, scratch, args.logits + uint64_t{blockIdx.x} * args.vocab, shared, chosen);
}

}  // namespace

void sample(const SampleArgs& args, cudaStream_t stream) {
  CHECK(args.rows > 0 && args.rows <= 65535 && args.vocab > 0, "{} rows, {} tokens", args.rows, args.vocab);
  launch(scan_kernel,
         {.grid = dim3(sample_chunks(args.vocab), args.rows), .block = dim3(kScanThreads), .shared_bytes = 0},
         stream, args);
  launch(finish_kernel, {.grid = dim3(args.rows), .block = dim3(kFinishThreads), .shared_bytes = 0}, stream,
         args);
}

}  // namespace strata::gpu_worker::cuda
