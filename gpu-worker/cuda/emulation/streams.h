#pragma once
// All streams of the process. Everything here and the fields of streams, captures and events are guarded by
// `mutex`, which is never held while something is waited for.

#include <mutex>
#include <vector>

#include "gpu-worker/cuda/emulation/stream.h"

namespace strata::gpu_worker::cuda::emulation {

class Streams {
 public:
  Streams();
  void add(unsigned flags, cudaStream_t* stream);
  void remove(cudaStream_t stream);
  // nullptr names the default stream; nullptr is the answer for a stream that does not exist.
  cudaStream_t find(cudaStream_t stream) const;
  const std::vector<cudaStream_t>& all() const { return all_; }
  uint64_t push(CUstream_st& stream, Operation run);

  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> captures;  // in progress

 private:
  Worker& worker_of(CUstream_st& stream);
  bool orders_with_default(const CUstream_st& stream) const;

  std::vector<cudaStream_t> all_;
  cudaStream_t default_stream_ = nullptr;
};

Streams& streams();

}  // namespace strata::gpu_worker::cuda::emulation
