#pragma once
// Experts that are not resident, on their way through the device for a large window: copied in batches into a
// ring of staging slots, ahead of need, on a stream of their own. A batch's slots are taken again when the
// kernels that read them are done.

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "gpu-worker/cuda/expert_places.h"
#include "services/base/status.h"
#include "services/model/model_weights.h"

namespace strata::gpu_worker::cuda {

struct ExpertStreamOptions {
  const model::ModelWeights* weights = nullptr;
  std::byte* staging = nullptr;  // ring_batches * batch_experts slots in device memory
  uint64_t slot_bytes = 0;
  uint32_t batch_experts = 0;
  uint32_t ring_batches = 0;
};

class ExpertStream {
 public:
  static Result<ExpertStream> create(const ExpertStreamOptions& options);
  ExpertStream(ExpertStream&& other) noexcept;
  ExpertStream& operator=(ExpertStream&&) = delete;
  ~ExpertStream();

  // A window begins; `places` stands still until its end. Copies start at once, behind what `compute` has
  // been given so far.
  void begin(const ExpertPlaceTables& places, cudaStream_t compute);
  uint32_t batches(uint32_t layer) const;
  // In the order of layers and batches, each followed by release(): what `compute` is given afterwards sees
  // the batch.
  void await_next(cudaStream_t compute);
  // What `compute` has been given so far was the last that reads the batch.
  void release(cudaStream_t compute);
  uint64_t bytes_copied() const { return bytes_copied_; }  // since the beginning

 private:
  struct Batch {
    uint32_t layer = 0;
    uint32_t first = 0;  // index in copied(layer)
    uint32_t count = 0;
  };
  explicit ExpertStream(const ExpertStreamOptions& options);
  void copy(const Batch& batch, uint32_t ring);
  void copy_ahead();

  ExpertStreamOptions options_;
  const ExpertPlaceTables* places_ = nullptr;
  cudaStream_t copies_ = nullptr;
  std::vector<cudaEvent_t> landed_, free_;  // (ring_batches)
  std::vector<Batch> batches_;
  uint32_t copied_ = 0, awaited_ = 0, released_ = 0;  // batches of the window
  uint64_t bytes_copied_ = 0;
};

}  // namespace strata::gpu_worker::cuda
