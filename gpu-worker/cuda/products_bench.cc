// Products and experts with the shapes of the real model. Bytes per second count the weights once, and are to
// be compared with the memory's bandwidth; operations are two for each weight and token. Every call meets
// weights that the cache no longer holds. One stream, no graph: calls of a few microseconds show their
// launches, too.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/experts.h"
#include "gpu-worker/cuda/products_q8.h"
#include "services/gguf/tensor_type.h"
#include "services/quant/test_inputs.h"

namespace strata::gpu_worker::cuda {
namespace {

using quant::tests::Generator;

constexpr uint64_t kColdBytes = 512u << 20;  // several times the second-level cache of an H200
constexpr uint32_t kCalls = 32;              // timed together

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values) {
  auto buffer = DeviceBuffer<T>::of(values);
  CHECK(buffer.has_value(), "{}", buffer.error().message());
  return std::move(*buffer);
}
template <class T>
DeviceBuffer<T> device_memory(uint64_t count) {
  auto buffer = DeviceBuffer<T>::create(count);
  CHECK(buffer.has_value(), "{}", buffer.error().message());
  return std::move(*buffer);
}

// Bytes that look like weights, repeated: what they are does not change the time, as long as they are
// numbers.
DeviceBuffer<std::byte> device_weights(TensorType type, uint64_t bytes) {
  Generator random(1);
  const auto& info = gguf::tensor_type_info(type);
  const auto some = quant::tests::weights(random, type, 64, 64 * info.block_values);
  auto buffer = device_memory<std::byte>(bytes + some.size());
  for (uint64_t at = 0; at < bytes; at += some.size()) CHECK(buffer.upload(some, at).ok(), "upload");
  return buffer;
}
uint64_t row_bytes_of(TensorType type, uint32_t cols) {
  const auto& info = gguf::tensor_type_info(type);
  return uint64_t{cols} / info.block_values * info.block_bytes;
}
DeviceBuffer<std::byte> device_activations(uint32_t rows, uint32_t cols) {
  auto buffer = device_memory<std::byte>(rows * q8_row_stride(cols));
  CHECK(buffer.zero().ok(), "zero");  // the arithmetic of zeros takes as long
  return buffer;
}

// Times calls of call(i), i ascending; `work` is bytes and operations of one.
template <class Call>
void measure(benchmark::State& state, uint64_t bytes, double operations, Call call) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, "events");
  uint64_t i = 0;
  for (; i < kCalls; ++i) call(i);
  for (auto _ : state) {
    cudaEventRecord(begin, nullptr);
    for (uint32_t n = 0; n < kCalls; ++n) call(i++);
    cudaEventRecord(end, nullptr);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    state.SetIterationTime(ms * 1e-3 / kCalls);
  }
  CHECK(cudaGetLastError() == cudaSuccess, "a kernel failed");
  const auto calls = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["bytes"] = Counter(static_cast<double>(bytes) * calls, Counter::kIsRate);
  state.counters["ops"] = Counter(operations * calls, Counter::kIsRate);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

void products(benchmark::State& state, TensorType type, uint32_t rows, uint32_t cols, uint32_t tokens) {
  const uint64_t row_bytes = row_bytes_of(type, cols), bytes = (rows * row_bytes + 63) / 64 * 64;
  const uint64_t copies = kColdBytes / bytes + 1;
  const auto weights = device_weights(type, bytes * copies);
  const auto x = device_activations(tokens, cols);
  const auto out = device_memory<float>(uint64_t{rows} * tokens);
  measure(state, bytes, 2.0 * rows * cols * tokens, [&](uint64_t i) {
    const ProductJob job{.matrix = {.type = type,
                                    .rows = rows,
                                    .cols = cols,
                                    .data = weights.data() + i % copies * bytes,
                                    .row_bytes = row_bytes},
                         .out = out.data(),
                         .out_stride = rows};
    multiply_q8({&job, 1}, {.data = x.data(), .stride = q8_row_stride(cols), .cols = cols}, tokens, nullptr);
  });
}

// top_k of kExperts experts for each row, evenly.
constexpr uint32_t kExperts = 512, kTopK = 10, kHidden = 2560, kWidth = 640;

void experts(benchmark::State& state, TensorType type, uint32_t rows) {
  LayerExpertsView view{.gate = {type, kWidth, kHidden, row_bytes_of(type, kHidden)},
                        .up = {type, kWidth, kHidden, row_bytes_of(type, kHidden)},
                        .down = {type, kHidden, kWidth, row_bytes_of(type, kWidth)},
                        .count = kExperts};
  view.up.offset = kWidth * view.gate.row_bytes;
  view.down.offset = 2 * view.up.offset;
  const uint64_t record = view.down.offset + kHidden * view.down.row_bytes;
  const auto arena = device_weights(type, record * kExperts);

  const uint32_t pairs = rows * kTopK, groups = std::min(pairs, kExperts);
  std::vector<uint32_t> ids;
  std::vector<HitGroup> list;
  for (uint32_t g = 0; g < groups; ++g) {
    const auto first = static_cast<uint32_t>(ids.size());
    for (uint32_t pair = g; pair < pairs; pair += groups) ids.push_back(pair);
    const uint32_t expert = g * (kExperts / groups);
    list.push_back(
        {arena.data() + expert * record, expert, first, static_cast<uint32_t>(ids.size()) - first});
  }
  const auto counts = on_device(std::vector<HitCounts>{{groups, pairs}});
  const auto device_ids = on_device(ids);
  // Other experts at each call.
  std::vector<DeviceBuffer<HitGroup>> lists;
  for (uint32_t n = 0; n < kExperts / groups; ++n) {
    auto other = list;
    for (HitGroup& group : other) group.record += n * record;
    lists.push_back(on_device(other));
  }
  const auto x = device_activations(rows, kHidden);
  const auto parts = device_memory<float>(uint64_t{pairs} * kHidden);
  const auto workspace = device_memory<std::byte>(experts_workspace_bytes(view, pairs));
  measure(state, record * groups, 6.0 * kHidden * kWidth * pairs, [&](uint64_t i) {
    compute_experts({.experts = view,
                     .hits = {counts.data(), lists[i % lists.size()].data(), device_ids.data()},
                     .rows = rows,
                     .top_k = kTopK,
                     .x_q8 = {.data = x.data(), .stride = q8_row_stride(kHidden), .cols = kHidden},
                     .parts = parts.data(),
                     .workspace = workspace.data()},
                    nullptr);
  });
}

void add(const std::string& name, void (*run)(benchmark::State&, TensorType, uint32_t, uint32_t, uint32_t),
         TensorType type, uint32_t rows, uint32_t cols, uint32_t tokens) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { run(state, type, rows, cols, tokens); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_all() {
  using enum TensorType;
  const auto type_name = [](TensorType type) { return std::string(gguf::tensor_type_info(type).name); };
  for (const auto& [rows, cols] :
       {std::pair{2560u, 2560u}, {10240u, 2560u}, {2560u, 6144u}, {248320u, 2560u}}) {
    for (const uint32_t tokens : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 512u, 4096u}) {
      if (rows > 100000 && tokens > 128) continue;
      add("products/Q8_0/" + std::to_string(rows) + "x" + std::to_string(cols) + "/" + std::to_string(tokens),
          products, kQ8_0, rows, cols, tokens);
    }
  }
  for (const TensorType type : {kQ4_0, kQ4_K, kQ6_K, kQ2_K, kQ2_0, kIQ2_XXS, kIQ3_S, kNVFP4}) {
    for (const uint32_t tokens : {1u, 8u, 4096u})
      add("products/" + type_name(type) + "/10240x2560/" + std::to_string(tokens), products, type, 10240,
          2560, tokens);
  }
  for (const TensorType type : {kQ2_0, kQ4_0}) {
    for (const uint32_t rows : {1u, 2u, 4u, 8u, 32u, 128u, 512u, 2048u, 8192u}) {
      add(
          "experts/" + type_name(type) + "/" + std::to_string(rows),
          [](benchmark::State& state, TensorType t, uint32_t r, uint32_t, uint32_t) { experts(state, t, r); },
          type, rows, 0, 0);
    }
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda

int main(int argc, char** argv) {
  strata::gpu_worker::cuda::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
