#pragma once
// Router logits to the experts of each row and their weights.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/dispatch.h"

namespace strata::gpu_worker::cuda {

// Reference: model::route; same ids, same bits, in router order (falling weight, equal ones by lower id). A
// row whose logits give NaN gets the experts 0..k-1 and NaN weights. One block a row. Moves 4*E bytes in and
// 6*k out per row.
struct RouteArgs {
  FloatRows logits;  // (rows, experts), not changed
  uint32_t rows = 0;
  uint32_t experts = 0;      // E <= kExpertsMax
  uint32_t top_k = 0;        // <= E, <= kExpertsPerTokenMax
  uint16_t* ids = nullptr;   // out (rows, top_k)
  float* weights = nullptr;  // out (rows, top_k)
  // Null, or (rows, top_k): taken in place of the choice (synthetic weights in benchmarks), which is made all
  // the same; the weights are then the softmax at these ids, renormalized.
  const uint16_t* forced_ids = nullptr;
};
void route(const RouteArgs& args, cudaStream_t stream);
// Also dispatch_experts() of the ids that it chooses; one launch in all for one row.
void route_and_dispatch(const RouteArgs& args, const DispatchArgs& dispatch, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
