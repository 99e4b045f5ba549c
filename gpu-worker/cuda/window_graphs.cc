#include "gpu-worker/cuda/window_graphs.h"

#include <algorithm>

#include "gpu-worker/cuda/runtime.h"

namespace strata::gpu_worker::cuda {

WindowGraphs::~WindowGraphs() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
}

Status WindowGraphs::launch(const GraphKey& key, const std::function<void()>& enqueue, cudaStream_t stream) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) {
    entries_.push_front({key, nullptr});
    if (entries_.size() > graphs_max_) {
      if (entries_.back().graph != nullptr) cudaGraphExecDestroy(entries_.back().graph);
      entries_.pop_back();
    }
    enqueue();
    return {};
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (found->graph == nullptr) {
    TRY(found->graph, capture(enqueue, stream));
  }
  TRY_CUDA(cudaGraphLaunch(found->graph, stream));
  return {};
}

Result<cudaGraphExec_t> WindowGraphs::capture(const std::function<void()>& enqueue, cudaStream_t stream) {
  TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  cudaGraph_t graph = nullptr;
  TRY_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  TRY_CUDA(error);
  ++captured_;
  return executable;
}

}  // namespace strata::gpu_worker::cuda
