#pragma once
// The first half of a stream read for few rows: what is pending, the norms, the down and inject products.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/stream_mixer.h"

namespace strata::gpu_worker::cuda {

// One launch: every block norms the streams for itself. The streams stay as they are (other blocks read
// them); the up product's blocks, which have each value once, write them (NormedStreams). Low and inject are
// done; scales (rows, C) gets each stream's 1 / rms. False, and nothing launched, for more rows or wider
// streams than that is good for.
bool norm_and_down(const StreamReadArgs& args, float* scales, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
