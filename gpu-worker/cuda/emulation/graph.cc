// Capture of streams into graphs, and their replay: the nodes run in the order of the calls, one after the
// other, on the stream that the graph is launched on.

#include <algorithm>
#include <thread>
#include <utility>

#include "gpu-worker/cuda/emulation/streams.h"

namespace strata::gpu_worker::cuda::emulation {

namespace {

// Whether each node comes before what `tail` stands for.
bool all_joined(const CUgraph_st& graph, const std::vector<uint32_t>& tail) {
  std::vector<bool> reached(graph.nodes.size());
  for (const uint32_t node : tail) reached[node] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    if (!reached[i]) return false;
    for (const uint32_t before : graph.nodes[i].after) reached[before] = true;
  }
  return true;
}

void end_capture(Capture& capture) {
  for (CUstream_st* member : capture.members) {
    member->capture = nullptr;
    member->tail.clear();
  }
}

}  // namespace

cudaError_t check_no_capture() {
  std::lock_guard lock(streams().mutex);
  for (const auto& capture : streams().captures) {
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id())
      continue;
    capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

}  // namespace strata::gpu_worker::cuda::emulation

using namespace strata::gpu_worker::cuda::emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  std::lock_guard lock(streams().mutex);
  CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (handle == nullptr || stream->capture != nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Capture>();
  stream->capture->graph = std::make_unique<CUgraph_st>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->members = {stream};
  stream->tail.clear();
  streams().captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  std::lock_guard lock(streams().mutex);
  *graph = nullptr;
  CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return remember(cudaErrorInvalidValue);
  if (capture->origin != stream) {
    capture->invalid = true;
    return remember(cudaErrorStreamCaptureUnmatched);
  }
  const bool joined = all_joined(*capture->graph, stream->tail);
  end_capture(*capture);
  std::erase(streams().captures, capture);
  if (capture->invalid) return remember(cudaErrorStreamCaptureInvalidated);
  if (!joined) return remember(cudaErrorStreamCaptureUnjoined);
  *graph = capture->graph.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  std::lock_guard lock(streams().mutex);
  const CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

// Only for the count: nodes cannot be looked at one by one.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (graph == nullptr || count == nullptr) return remember(cudaErrorInvalidValue);
  if (nodes != nullptr) return remember(cudaErrorNotSupported);
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) return remember(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  if (exec == nullptr || graph == nullptr || info == nullptr) return remember(cudaErrorInvalidValue);
  const std::vector<Node>& old = exec->graph->nodes;
  const std::vector<Node>& now = graph->nodes;
  *info = {};
  if (!std::equal(old.begin(), old.end(), now.begin(), now.end(),
                  [](const Node& a, const Node& b) { return a.after == b.after; })) {
    info->result = cudaGraphExecUpdateErrorTopologyChanged;
  } else if (!std::equal(old.begin(), old.end(), now.begin(),
                         [](const Node& a, const Node& b) { return a.kind == b.kind; })) {
    info->result = cudaGraphExecUpdateErrorNodeTypeChanged;
  }
  if (info->result != cudaGraphExecUpdateSuccess) return remember(cudaErrorGraphExecUpdateFailure);
  exec->graph = std::make_shared<const CUgraph_st>(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  return exec == nullptr ? remember(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  if (exec == nullptr) return remember(cudaErrorInvalidValue);
  return remember(enqueue(handle, NodeKind::kKernel, [graph = exec->graph] {
    for (const Node& node : graph->nodes) node.run();
  }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
