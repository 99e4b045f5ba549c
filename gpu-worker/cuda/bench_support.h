#pragma once
// For benchmarks of operations: memory, and times of calls in a graph.

#include <benchmark/benchmark.h>

#include <functional>

#include "gpu-worker/cuda/device_buffer.h"

namespace strata::gpu_worker::cuda::bench {

inline constexpr uint64_t kColdBytes = 256u << 20;  // several times the second-level cache of an H200

// Zeros: the arithmetic of zeros takes as long.
template <class T>
DeviceBuffer<T> zeros(uint64_t count) {
  auto buffer = DeviceBuffer<T>::create(count);
  CHECK(buffer.has_value(), "{}", buffer.error().message());
  CHECK(buffer->zero().ok(), "zero");
  return std::move(*buffer);
}

// Times a graph of calls call(i, stream); bytes and operations are those of one call.
inline void measure(benchmark::State& state, double bytes, double operations,
                    const std::function<void(uint64_t, cudaStream_t)>& call) {
  const uint32_t calls = operations > 1e10 ? 2 : 48;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreate(&begin) == cudaSuccess &&
        cudaEventCreate(&end) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  for (uint64_t i = 0; i < calls; ++i) call(i, stream);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  cudaGraphLaunch(exec, stream);
  for (auto _ : state) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    state.SetIterationTime(ms * 1e-3 / calls);
  }
  CHECK(cudaGetLastError() == cudaSuccess, "a kernel failed");
  using benchmark::Counter;
  const auto count = static_cast<double>(state.iterations());
  state.counters["bytes"] = Counter(bytes * count, Counter::kIsRate);
  state.counters["ops"] = Counter(operations * count, Counter::kIsRate);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
}

}  // namespace strata::gpu_worker::cuda::bench
