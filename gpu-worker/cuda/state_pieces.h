#pragma once
// Moves the pieces of a page between the arrays of a sequence and one blob, in one launch: array by array a
// page of a large model would be a hundred copies, each of which costs more than its bytes.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu-worker/cuda/state_staging.h"
#include "gpu-worker/state_copies.h"

namespace strata::gpu_worker::cuda {

struct StatePiecesArgs {
  const StatePiece* pieces = nullptr;  // (count), where the device reads them: device or page-locked memory
  uint32_t count = 0;
  std::byte* blob = nullptr;  // likewise
  StateDirection direction = StateDirection::kToBlob;
};
// Moves the bytes of the pieces once, over the bus if the blob is page-locked memory. Pieces whose ends are
// multiples of 16 bytes go 16 bytes at a time. Does not synchronize.
void move_pieces(const StatePiecesArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
