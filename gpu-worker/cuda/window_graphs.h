#pragma once
// Windows as CUDA graphs: one launch for a whole pass instead of a thousand. A graph belongs to a shape; the
// shapes of decoding are few and come again and again.

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <list>

#include "gpu-worker/cuda/window_input.h"
#include "services/base/status.h"

namespace strata::gpu_worker::cuda {

struct GraphKey {
  WindowShape shape;
  bool marked = false;  // with stage marks
  auto operator<=>(const GraphKey&) const = default;
};

class WindowGraphs {
 public:
  // Keeps the `graphs_max` that were used last.
  explicit WindowGraphs(uint32_t graphs_max) : graphs_max_(graphs_max) {}
  WindowGraphs(WindowGraphs&& other) noexcept = default;
  ~WindowGraphs();

  // Launches the key's graph; captures it first from what `enqueue` gives to the stream, when the key comes
  // for the second time. The first time it is given to the stream directly: a shape that does not return is
  // not worth a capture.
  Status launch(const GraphKey& key, const std::function<void()>& enqueue, cudaStream_t stream);
  uint64_t captured() const { return captured_; }

 private:
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;  // null: seen once
  };
  Result<cudaGraphExec_t> capture(const std::function<void()>& enqueue, cudaStream_t stream);

  uint32_t graphs_max_;
  std::list<Entry> entries_;  // last used first
  uint64_t captured_ = 0;
};

}  // namespace strata::gpu_worker::cuda
