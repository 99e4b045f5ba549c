// Attention, router, sum of parts and sampling with the shapes of the real model. Calls run in a graph, as in
// a window. Calls of an attention layer meet a cache of keys and values that the GPU's own cache no longer
// holds.

#include "gpu-worker/cuda/attention.h"

#include <algorithm>

#include "gpu-worker/cuda/attention_blocks.h"
#include "gpu-worker/cuda/attention_prepare.h"
#include "gpu-worker/cuda/bench_support.h"
#include "gpu-worker/cuda/combine.h"
#include "gpu-worker/cuda/route.h"
#include "gpu-worker/cuda/sampling.h"
#include "services/quant/test_inputs.h"

namespace strata::gpu_worker::cuda {
namespace {

using bench::kColdBytes;
using bench::measure;
using bench::zeros;

constexpr AttentionShape kShape = {.heads = 24,
                                   .kv_heads = 2,
                                   .head_dim = 256,
                                   .rope_pairs = 32,
                                   .block_tokens = 4,
                                   .indexer_heads = 4,
                                   .indexer_dim = 128,
                                   .top_k_tokens = 2048,
                                   .eps = 1e-6f};
constexpr uint32_t kHeadsDim = kShape.heads * kShape.head_dim, kKvDim = kShape.kv_heads * kShape.head_dim;
constexpr uint32_t kIndexerDim = kShape.indexer_heads * kShape.indexer_dim;

// Other numbers in every place, so that block scores differ.
DeviceBuffer<float> random_values(uint64_t count) {
  quant::tests::Generator random(count);
  std::vector<float> values(count);
  for (float& value : values) value = random.uniform();
  return std::move(*DeviceBuffer<float>::of(values));
}

// One sequence that goes on with `rows` rows up to `context` tokens.
struct BenchLayer {
  BenchLayer(uint32_t row_count, uint32_t context, KvFormat format)
      : q(random_values(uint64_t{row_count} * 2 * kHeadsDim)),
        kv(random_values(uint64_t{row_count} * kKvDim)),
        indexer_q(random_values(uint64_t{row_count} * kIndexerDim)),
        indexer_k(random_values(uint64_t{row_count} * kShape.indexer_dim)),
        turns(random_values(uint64_t{row_count} * 2 * kShape.rope_pairs)),
        norms(random_values(kShape.head_dim)),
        pooled(random_values(uint64_t{context / kShape.block_tokens} * kShape.indexer_dim)),
        raw(zeros<float>(3 * kShape.indexer_dim)),
        out(zeros<float>(uint64_t{row_count} * kHeadsDim)),
        out_q8(zeros<std::byte>(row_count * q8_row_stride(kHeadsDim))),
        chosen(zeros<uint32_t>(uint64_t{row_count} * kShape.blocks_chosen())),
        score_rows(std::min(row_count, 512u)),
        block_scores(zeros<float>(uint64_t{score_rows} * (context / kShape.block_tokens))),
        scratch(zeros<float>(score_rows * attention_scratch_floats(kShape, context))) {
    const uint64_t bytes = kv_bytes(format, kShape, context);
    copies = kColdBytes / (2 * bytes) + 1;
    values = zeros<std::byte>(copies * 2 * bytes);
    scales = zeros<float>(2 * kv_scale_floats(format, kShape, context));
    std::vector<RowInfo> infos;
    for (uint32_t row = 0; row < row_count; ++row) infos.push_back({.position = context - row_count + row});
    rows = std::move(*DeviceBuffer<RowInfo>::of(infos));
    segments = std::move(*DeviceBuffer<SegmentInfo>::of(
        std::vector<SegmentInfo>{{.row_count = row_count, .position = context - row_count}}));
    window = {.row_count = row_count,
              .segment_count = 1,
              .rows = rows.data(),
              .segments = segments.data(),
              .turns = turns.data(),
              .block_turns = turns.data()};
    cache = {.format = format,
             .capacity = context,
             .k_scales = scales.data(),
             .v_scales = scales.data() + kv_scale_floats(format, kShape, context),
             .pooled = pooled.data(),
             .raw = raw.data(),
             .kv_stride = bytes};
  }
  AttentionCache cache_at(uint64_t call) const {
    AttentionCache at = cache;
    at.k = values.data() + call % copies * 2 * cache.kv_stride;
    at.v = at.k + cache.kv_stride;
    return at;
  }
  void prepare(uint64_t call, cudaStream_t stream) const {
    attention_prepare({.shape = kShape,
                       .cache = cache_at(call),
                       .window = window,
                       .q = {q.data(), 2 * kHeadsDim},
                       .k = {kv.data(), kKvDim},
                       .v = {kv.data(), kKvDim},
                       .indexer_q = {indexer_q.data(), kIndexerDim},
                       .indexer_k = {indexer_k.data(), kShape.indexer_dim},
                       .q_norm = norms.data(),
                       .k_norm = norms.data(),
                       .indexer_q_norm = norms.data(),
                       .indexer_k_norm = norms.data()},
                      stream);
  }
  void choose(uint64_t call, cudaStream_t stream) const {
    attention_blocks({.shape = kShape,
                      .cache = cache_at(call),
                      .window = window,
                      .indexer_q = {indexer_q.data(), kIndexerDim},
                      .scores = block_scores.data(),
                      .score_rows = score_rows,
                      .chosen = chosen.data()},
                     stream);
  }
  void attend(uint64_t call, cudaStream_t stream) const {
    attention({.shape = kShape,
               .cache = cache_at(call),
               .window = window,
               .q = {q.data(), 2 * kHeadsDim},
               .chosen = chosen.data(),
               .scratch = scratch.data(),
               .score_rows = score_rows,
               .out = {out.data(), kHeadsDim},
               .out_q8 = {out_q8.data(), q8_row_stride(kHeadsDim), kHeadsDim}},
              stream);
  }
  DeviceBuffer<float> q, kv, indexer_q, indexer_k, turns, norms, pooled, raw, out;
  DeviceBuffer<std::byte> out_q8;
  DeviceBuffer<uint32_t> chosen;
  uint32_t score_rows;
  DeviceBuffer<float> block_scores, scratch;
  DeviceBuffer<std::byte> values;
  DeviceBuffer<float> scales;
  DeviceBuffer<RowInfo> rows;
  DeviceBuffer<SegmentInfo> segments;
  uint64_t copies = 0;
  WindowView window;
  AttentionCache cache;
};

// Arguments: rows, context, format.
BenchLayer layer_of(const benchmark::State& state) {
  return {static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)),
          static_cast<KvFormat>(state.range(2))};
}
double attended(const benchmark::State& state) {
  return std::min(2048.0, static_cast<double>(state.range(1)));
}

void prepare(benchmark::State& state) {
  const BenchLayer layer = layer_of(state);
  measure(state, 8.0 * state.range(0) * (kHeadsDim + 2 * kKvDim + kIndexerDim), 0,
          [&](uint64_t i, cudaStream_t stream) { layer.prepare(i, stream); });
}
void blocks(benchmark::State& state) {
  const BenchLayer layer = layer_of(state);
  const double block_keys = static_cast<double>(state.range(1)) / kShape.block_tokens;
  measure(state, 4.0 * block_keys * kShape.indexer_dim, 2.0 * block_keys * kIndexerDim * state.range(0),
          [&](uint64_t i, cudaStream_t stream) { layer.choose(i, stream); });
}
void attend(benchmark::State& state) {
  const BenchLayer layer = layer_of(state);
  layer.choose(0, nullptr);
  measure(state, 2.0 * attended(state) * kKvDim * kv_value_bytes(layer.cache.format),
          4.0 * attended(state) * kHeadsDim * state.range(0),
          [&](uint64_t i, cudaStream_t stream) { layer.attend(i, stream); });
}
void cases(benchmark::internal::Benchmark* bench) {
  for (const int64_t format : {0, 1, 2}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 1000},
                                              {1, 36000},
                                              {1, 250000},
                                              {4, 36000},
                                              {16, 36000},
                                              {64, 36000},
                                              {512, 36000}})
      bench->Args({shape[0], shape[1], format});
  }
  bench->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(prepare)
    ->Args({1, 36000, 0})
    ->Args({1, 36000, 2})
    ->Args({512, 36000, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(blocks)
    ->Args({1, 1000, 0})
    ->Args({1, 36000, 0})
    ->Args({1, 250000, 0})
    ->Args({16, 36000, 0})
    ->Args({512, 36000, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(attend)->Apply(cases);

void router_choice(benchmark::State& state) {
  constexpr uint32_t kExperts = 512, kTopK = 10;
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto logits = random_values(uint64_t{rows} * kExperts),
             weights = zeros<float>(uint64_t{rows} * kTopK);
  const auto ids = zeros<uint16_t>(uint64_t{rows} * kTopK);
  measure(state, 4.0 * rows * kExperts, 0, [&](uint64_t, cudaStream_t stream) {
    route({.logits = {logits.data(), kExperts},
           .rows = rows,
           .experts = kExperts,
           .top_k = kTopK,
           .ids = ids.data(),
           .weights = weights.data()},
          stream);
  });
}
BENCHMARK(router_choice)->Arg(1)->Arg(8)->Arg(512)->Arg(4096)->UseManualTime()->Unit(benchmark::kMicrosecond);

// Arguments: rows, parts of a row in host memory.
void sum_of_parts(benchmark::State& state) {
  constexpr uint32_t kHidden = 2560, kTopK = 10, kStreams = 4;
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto remote_parts = static_cast<uint32_t>(state.range(1));
  const auto parts = zeros<float>(uint64_t{rows} * kTopK * kHidden),
             shared = zeros<float>(uint64_t{rows} * kHidden),
             x = zeros<float>(uint64_t{rows} * kStreams * kHidden),
             weights = zeros<float>(uint64_t{rows} * kTopK), small = zeros<float>(uint64_t{rows} * kStreams);
  const auto away = std::move(*PinnedBuffer<float>::create(uint64_t{rows} * kTopK * kHidden));
  std::vector<uint64_t> addresses(uint64_t{rows} * kTopK);
  for (uint64_t pair = 0; pair < addresses.size(); ++pair) {
    if (pair % kTopK < remote_parts)
      addresses[pair] = reinterpret_cast<uint64_t>(away.data() + pair * kHidden);
  }
  const auto remote = std::move(*DeviceBuffer<uint64_t>::of(addresses));
  measure(state, 4.0 * rows * kHidden * (kTopK + 1 + 2 * kStreams), 0, [&](uint64_t, cudaStream_t stream) {
    combine({.rows = rows,
             .hidden = kHidden,
             .top_k = kTopK,
             .streams = kStreams,
             .weights = weights.data(),
             .parts = parts.data(),
             .remote = remote.data(),
             .shared = {shared.data(), kHidden},
             .shared_gate = small.data(),
             .inject = small.data(),
             .x = x.data()},
            stream);
  });
}
BENCHMARK(sum_of_parts)
    ->Args({1, 0})
    ->Args({1, 4})
    ->Args({8, 0})
    ->Args({512, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Arguments: rows, top_k (0: greedy).
void sampling(benchmark::State& state) {
  constexpr uint32_t kVocab = 248320;
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto top_k = static_cast<uint32_t>(state.range(1));
  const auto logits = random_values(uint64_t{rows} * kVocab);
  const auto requests = std::move(*DeviceBuffer<SampleRow>::of(std::vector<SampleRow>(
      rows, {.temperature = top_k > 0 ? 1.0f : 0.0f, .top_p = 0.95f, .top_k = top_k, .random = 0.5})));
  const auto scratch = zeros<std::byte>(sampling_scratch_bytes(rows, kVocab));
  const auto results = std::move(*PinnedBuffer<SampleResult>::create(rows));
  measure(state, 4.0 * rows * kVocab, 0, [&](uint64_t, cudaStream_t stream) {
    sample({.logits = logits.data(),
            .rows = rows,
            .vocab = kVocab,
            .requests = requests.data(),
            .scratch = scratch.data(),
            .results = results.data()},
           stream);
  });
}
BENCHMARK(sampling)
    ->Args({1, 0})
    ->Args({8, 0})
    ->Args({1, 20})
    ->Args({8, 20})
    ->Args({1, 1024})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata::gpu_worker::cuda

BENCHMARK_MAIN();
