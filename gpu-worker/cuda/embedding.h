#pragma once
// The first state of the streams: every stream begins with the token's embedding.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

struct EmbedArgs {
  DeviceMatrix table;        // (V, H), any type; its scale multiplies the values
  WindowView window;         // rows[i].token
  float* streams = nullptr;  // out (rows, C, H)
  uint32_t streams_count = 0;
};
void embed_tokens(const EmbedArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
