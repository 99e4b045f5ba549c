#pragma once
// Streams: each has a queue and an OS thread of its own, which runs what is queued in order. So kernels may
// wait for words that the host or another stream writes. While a stream is captured, its operations become
// nodes of a graph instead.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu-worker/cuda/emulation/host_api.h"

namespace strata::gpu_worker::cuda::emulation {

using Operation = std::function<void()>;

// The queue and its thread. The thread is detached: it ends when the last owner is gone and the queue is
// empty.
class Worker {
 public:
  static std::shared_ptr<Worker> start();
  uint64_t push(Operation operation);  // its number
  uint64_t pushed();
  bool completed(uint64_t number);
  void wait(uint64_t number);
  void close();

 private:
  static void serve(std::shared_ptr<Worker> self);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  uint64_t pushed_ = 0;
  uint64_t completed_ = 0;
  bool closed_ = false;
};

enum class NodeKind { kKernel, kCopy, kSet, kHost, kEvent };

struct Node {
  NodeKind kind;
  Operation run;
  std::vector<uint32_t> after;  // nodes of the graph
};

struct Capture {
  std::unique_ptr<CUgraph_st> graph;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // that began it
  std::vector<cudaStream_t> members;
  bool invalid = false;
};

// Runs `run` on the stream after what is queued there, or adds it to the graph that is captured.
cudaError_t enqueue(cudaStream_t stream, NodeKind kind, Operation run);
// Calls that synchronize or allocate spoil a capture in progress; to be called before they do anything.
cudaError_t check_no_capture();
// Waits until everything that any stream was given is done.
void wait_for_all();
// Sets the calling thread's last error.
cudaError_t remember(cudaError_t error);

}  // namespace strata::gpu_worker::cuda::emulation

struct CUgraph_st {
  std::vector<strata::gpu_worker::cuda::emulation::Node> nodes;  // in the order of the calls
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

struct CUstream_st {
  unsigned flags = 0;
  int process = 0;  // the one in which worker runs: a child of fork() has none of its parent's threads
  std::shared_ptr<strata::gpu_worker::cuda::emulation::Worker> worker;
  std::shared_ptr<strata::gpu_worker::cuda::emulation::Capture> capture;
  std::vector<uint32_t> tail;  // nodes of the capture that the next one comes after
};
