// Stream reads, delta-net, float products and their neighbours with the shapes of the real model. Calls run
// in a graph, as in a window, so a time is that of the kernels and the steps between them. Every call meets
// weights and states that the cache no longer holds.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpu-worker/cuda/bench_support.h"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/embedding.h"
#include "gpu-worker/cuda/ngram.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/stream_mixer.h"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {
namespace {

using bench::kColdBytes;
using bench::measure;
using bench::zeros;

constexpr uint32_t kHidden = 2560, kStreams = 4, kWide = kStreams * kHidden, kRank = 320;
constexpr uint32_t kKeyHeads = 16, kValueHeads = 48, kDim = 128, kTaps = 4;
constexpr uint32_t kChannels = (2 * kKeyHeads + kValueHeads) * kDim, kValues = kValueHeads * kDim;

// Matrices of one shape side by side, so many that they do not stay in the cache.
struct ColdMatrices {
  ColdMatrices(TensorType type, uint32_t rows, uint32_t cols) {
    const auto& info = gguf::tensor_type_info(type);
    matrix = {.type = type,
              .rows = rows,
              .cols = cols,
              .row_bytes = uint64_t{cols} / info.block_values * info.block_bytes};
    bytes = (rows * matrix.row_bytes + 63) / 64 * 64;
    copies = kColdBytes / bytes + 1;
    stored = zeros<std::byte>(bytes * copies);
  }
  DeviceMatrix at(uint64_t call) const {
    DeviceMatrix result = matrix;
    result.data = stored.data() + call % copies * bytes;
    return result;
  }
  DeviceMatrix matrix;
  uint64_t bytes = 0, copies = 0;
  DeviceBuffer<std::byte> stored;
};

// A window of `sequences` with `rows_each` rows.
struct BenchWindow {
  BenchWindow(uint32_t sequences, uint32_t rows_each) {
    std::vector<RowInfo> row_infos;
    std::vector<SegmentInfo> segment_infos;
    for (uint32_t s = 0; s < sequences; ++s) {
      segment_infos.push_back(
          {.sequence = s, .row_begin = s * rows_each, .row_count = rows_each, .prompt_rows = rows_each});
      for (uint32_t i = 0; i < rows_each; ++i)
        row_infos.push_back({.segment = s, .position = i, .sequence = s});
    }
    rows = std::move(*DeviceBuffer<RowInfo>::of(row_infos));
    segments = std::move(*DeviceBuffer<SegmentInfo>::of(segment_infos));
    view = {.row_count = sequences * rows_each,
            .segment_count = sequences,
            .rows = rows.data(),
            .segments = segments.data()};
  }
  DeviceBuffer<RowInfo> rows;
  DeviceBuffer<SegmentInfo> segments;
  WindowView view;
};

void reads(benchmark::State& state) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const ColdMatrices down(TensorType::kQ8_0, kRank, kWide), up(TensorType::kQ8_0, kWide, kRank),
      inject(TensorType::kQ8_0, kStreams, kWide);
  const auto norm = zeros<float>(kWide), streams = zeros<float>(uint64_t{rows} * kWide);
  const auto output = zeros<float>(uint64_t{rows} * kHidden), input = zeros<float>(uint64_t{rows} * kHidden);
  const auto normed = zeros<float>(uint64_t{rows} * kWide), mask = zeros<float>(uint64_t{rows} * kWide);
  const auto low = zeros<float>(uint64_t{rows} * kRank),
             injects = zeros<float>(2 * uint64_t{rows} * kStreams);
  const auto q8 = zeros<std::byte>(rows * q8_row_stride(kHidden));
  const auto products =
      zeros<float>(std::max(scratch_floats(kWide, kRank, rows), scratch_floats(kRank + 64, kWide, rows)));
  const double weights = kWide * (2.0 * kRank + kStreams);
  measure(state, weights * 34 / 32 + rows * kWide * 16.0, 2 * weights * rows,
          [&](uint64_t i, cudaStream_t stream) {
            read_streams({.mixer = {.norm = norm.data(),
                                    .down = down.at(i),
                                    .up = up.at(i),
                                    .inject = inject.at(i),
                                    .streams = kStreams,
                                    .hidden = kHidden,
                                    .eps = 1e-6f},
                          .pending = {.output = output.data(), .inject = injects.data()},
                          .streams = streams.data(),
                          .scratch = {.normed = normed.data(),
                                      .mask = mask.data(),
                                      .low = low.data(),
                                      .products = {products.data(), products.size()}},
                          .inject = injects.data() + uint64_t{rows} * kStreams,
                          .input = input.data(),
                          .input_q8 = {.data = q8.data(), .stride = q8_row_stride(kHidden), .cols = kHidden},
                          .rows = rows},
                         stream);
          });
}
BENCHMARK(reads)
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Arg(32)
    ->Arg(128)
    ->Arg(512)
    ->Arg(4096)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void float_products(benchmark::State& state, TensorType type, uint32_t matrix_rows, uint32_t cols) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const ColdMatrices matrix(type, matrix_rows, cols);
  const auto x = zeros<float>(uint64_t{rows} * cols), out = zeros<float>(uint64_t{rows} * matrix_rows);
  const auto scratch = zeros<float>(scratch_floats(matrix_rows, cols, rows));
  measure(state, static_cast<double>(matrix.bytes), 2.0 * matrix_rows * cols * rows,
          [&](uint64_t i, cudaStream_t stream) {
            const ProductJob job = {.matrix = matrix.at(i), .out = out.data(), .out_stride = matrix_rows};
            multiply_f32(std::span(&job, 1), {x.data(), cols}, rows, stream,
                         {scratch.data(), scratch.size()});
          });
}
void router(benchmark::State& state) { float_products(state, TensorType::kF32, 512, kHidden); }
void steps(benchmark::State& state) { float_products(state, TensorType::kF32, 2 * kValueHeads, kHidden); }
void half_matrix(benchmark::State& state) { float_products(state, TensorType::kF16, kChannels, kHidden); }
BENCHMARK(router)
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->Arg(16)
    ->Arg(32)
    ->Arg(512)
    ->Arg(4096)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(steps)->Arg(1)->Arg(8)->Arg(16)->Arg(512)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(half_matrix)->Arg(1)->Arg(8)->Arg(512)->UseManualTime()->Unit(benchmark::kMicrosecond);

// As many rows as the scratch of chunks lies on in a device with windows of 8192.
constexpr uint64_t kRowsOfScratch = 8192;

void delta_net_of(benchmark::State& state, uint32_t sequences, uint32_t rows_each, bool chunked) {
  if (chunked && !can_chunk_delta_net(kDim)) return state.SkipWithError("no chunked form on this GPU");
  const BenchWindow window(sequences, rows_each);
  const uint64_t rows = window.view.row_count;
  const uint64_t state_floats = uint64_t{kValues} * kDim, history_floats = uint64_t{kChannels} * (kTaps - 1);
  const uint64_t copies = kColdBytes / (sequences * state_floats * sizeof(float)) + 1;
  const auto conv = zeros<float>(kChannels * kTaps), heads_weights = zeros<float>(2 * kValueHeads + kDim);
  const uint64_t qkv_floats = (chunked ? std::max(rows, kRowsOfScratch) : rows) * kChannels;
  const auto qkv = zeros<float>(qkv_floats), log_decays = zeros<float>(rows * kValueHeads);
  const auto gate = zeros<float>(rows * kValues);
  const auto alpha = zeros<float>(rows * kValueHeads), beta = zeros<float>(rows * kValueHeads);
  const auto heads = zeros<float>(rows * kValues), mixed = zeros<float>(rows * kChannels);
  const auto q8 = zeros<std::byte>(rows * q8_row_stride(kValues));
  const auto states = zeros<float>(copies * sequences * state_floats);
  const auto histories = zeros<float>(copies * sequences * history_floats);
  const auto arrivals = zeros<uint32_t>(uint64_t{sequences} * kKeyHeads);
  const double bytes =
      8.0 * sequences * (state_floats + history_floats) + 4.0 * rows * (kChannels + 2 * kValues);
  const double operations = 7.0 * rows * state_floats;
  measure(state, bytes, rows > 32 ? operations + 1e10 : operations, [&](uint64_t i, cudaStream_t stream) {
    delta_net({.window = window.view,
               .key_heads = kKeyHeads,
               .value_heads = kValueHeads,
               .dim = kDim,
               .taps = kTaps,
               .eps = 1e-6f,
               .conv = conv.data(),
               .a = heads_weights.data(),
               .dt_bias = heads_weights.data() + kValueHeads,
               .norm = heads_weights.data() + 2 * kValueHeads,
               .qkv = {qkv.data(), kChannels},
               .gate = {gate.data(), kValues},
               .alpha = {alpha.data(), kValueHeads},
               .beta = {beta.data(), kValueHeads},
               .heads = heads.data(),
               .heads_q8 = {.data = q8.data(), .stride = q8_row_stride(kValues), .cols = kValues},
               .state = states.data() + i % copies * sequences * state_floats,
               .state_stride = state_floats,
               .history = histories.data() + i % copies * sequences * history_floats,
               .history_stride = history_floats,
               .mixed = mixed.data(),
               .arrivals = arrivals.data(),
               .log_decays = chunked ? log_decays.data() : nullptr,
               .chunk_scratch = {.data = qkv.data(), .floats = qkv_floats}},
              stream);
  });
}
// Arguments: sequences, rows of each.
void delta(benchmark::State& state) {
  delta_net_of(state, static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)), false);
}
// The same for prompts in the chunked form.
void delta_chunked(benchmark::State& state) {
  delta_net_of(state, static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)), true);
}
BENCHMARK(delta)
    ->Args({1, 1})
    ->Args({1, 4})
    ->Args({8, 1})
    ->Args({16, 1})
    ->Args({1, 64})
    ->Args({1, 512})
    ->Args({1, 2048})
    ->Args({1, 8192})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(delta_chunked)
    ->Args({1, 512})
    ->Args({1, 2048})
    ->Args({1, 8192})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void ngram(benchmark::State& state) {
  constexpr uint32_t kNgramTaps = 4, kDilation = 3;
  const BenchWindow window(1, static_cast<uint32_t>(state.range(0)));
  const uint64_t rows = window.view.row_count;
  const auto norms = zeros<float>(kWide), conv = zeros<float>(kWide * kNgramTaps);
  const auto keys = zeros<float>(rows * kWide), values = zeros<float>(rows * kHidden);
  const auto gated = zeros<float>(rows * kWide), conv_input = zeros<float>(rows * kWide);
  const auto streams = zeros<float>(rows * kWide),
             history = zeros<float>(kWide * kDilation * (kNgramTaps - 1));
  measure(state, 8.0 * history.size() + 28.0 * rows * kWide, 0, [&](uint64_t, cudaStream_t stream) {
    ngram_add({.window = window.view,
               .norm_key = norms.data(),
               .norm_query = norms.data(),
               .norm_conv = norms.data(),
               .conv = conv.data(),
               .streams_count = kStreams,
               .hidden = kHidden,
               .taps = kNgramTaps,
               .dilation = kDilation,
               .eps = 1e-6f,
               .keys = keys.data(),
               .values = values.data(),
               .gated = gated.data(),
               .conv_input = conv_input.data(),
               .streams = streams.data(),
               .history = history.data(),
               .history_stride = history.size()},
              stream);
  });
}
BENCHMARK(ngram)->Arg(1)->Arg(512)->UseManualTime()->Unit(benchmark::kMicrosecond);

void embed(benchmark::State& state) {
  const BenchWindow window(1, static_cast<uint32_t>(state.range(0)));
  const ColdMatrices table(TensorType::kQ8_0, 1000, kHidden);
  const auto streams = zeros<float>(uint64_t{window.view.row_count} * kWide);
  measure(state, window.view.row_count * 4.0 * kWide, 0, [&](uint64_t i, cudaStream_t stream) {
    embed_tokens(
        {.table = table.at(i), .window = window.view, .streams = streams.data(), .streams_count = kStreams},
        stream);
  });
}
BENCHMARK(embed)->Arg(1)->Arg(512)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata::gpu_worker::cuda

BENCHMARK_MAIN();
