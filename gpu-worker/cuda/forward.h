#pragma once
// One pass over all layers on the device: the counterpart of model::Forward, operation by operation, with the
// same bits. Everything is given to streams; nothing waits. The same calls fill a captured graph.

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "gpu-worker/cuda/device_model.h"
#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/cuda/expert_stream.h"
#include "gpu-worker/cuda/stage_marks.h"
#include "gpu-worker/cuda/state_capture.h"
#include "gpu-worker/cuda/window_buffers.h"
#include "gpu-worker/cuda/window_input.h"
#include "services/base/status.h"

namespace strata::gpu_worker::cuda {

struct ForwardOptions {
  const model::ModelWeights* weights = nullptr;  // shapes only
  DeviceModel model;
  DeviceState state;
  WindowBuffers buffers;
  const std::byte* arena = nullptr;
  const std::byte* staging = nullptr;
  uint64_t slot_bytes = 0;
  uint32_t staging_slots = 0;
  uint32_t batch_experts = 0;
  const uint32_t* places_with_boards =
      nullptr;  // (layers, experts_max) in device memory, see ExpertPlaceTables
  const uint32_t* places_with_copies = nullptr;
  uint32_t experts_max = 0;
  const BoardTable* boards = nullptr;  // device memory
  BoardTickets* tickets = nullptr;
  const uint32_t* stop = nullptr;        // of AwaitArgs
  const LogitChange* changes = nullptr;  // page-locked, of all sampled rows
  const uint32_t* masks = nullptr;       // page-locked, (logit_rows, mask_words)
  SampleResult* results = nullptr;       // page-locked (logit rows)
};

class Forward {
 public:
  static Result<Forward> create(ForwardOptions options);
  Forward(Forward&& other) noexcept;
  Forward& operator=(Forward&&) = delete;
  ~Forward();

  // Gives the window to `stream`. `input` lies in device memory. `experts` is needed when the shape copies
  // experts, and has begun. `before_pages`, if there is one, is called when all in front of the first
  // attention layer has been given; it waits until pages are there. `captures`: rising rows; all of those
  // states but the n-gram contexts, which are the host's. What they point to is read before this returns.
  void enqueue(const WindowShape& shape, const WindowInput& input, ExpertStream* experts, StageMarks& marks,
               cudaStream_t stream, const std::function<void()>& before_pages = {},
               std::span<const StateCapture> captures = {});

 private:
  struct Pass;
  explicit Forward(ForwardOptions options) : options_(std::move(options)) {}

  ForwardOptions options_;
  cudaStream_t side_ = nullptr;  // the shared expert, beside the routed ones
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
};

}  // namespace strata::gpu_worker::cuda
