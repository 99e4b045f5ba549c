#pragma once
// How an operation that carries a state from row to row captures it on the way: launches for the rows up to
// there, a copy, launches for the rest. Where a sequence may be cut into windows (docs/numerics.md), that
// gives the bits of one launch.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/state_capture.h"

namespace strata::gpu_worker::cuda {

// The rows of a window cut behind every row whose state is wanted: advance(rows) moves states on by those
// rows, keep(capture) copies one. Without captures advance() is called once.
template <class Advance, class Keep>
void for_each_stretch(std::span<const StateCapture> captures, uint32_t row_count, const Advance& advance,
                      const Keep& keep) {
  RowRange rows;
  for (const StateCapture& capture : captures) {
    rows.end = capture.row + 1;
    advance(rows);
    keep(capture);
    rows.begin = rows.end;
  }
  rows.end = row_count;
  if (rows.begin < rows.end) advance(rows);
}

// `count` floats of a sequence's state, those of sequence 0 at `base`. A kernel behind a copy never begins
// early: what it reads before await_earlier_kernels() is there.
inline void keep_floats(float* to, const float* base, uint64_t stride, uint64_t count,
                        const StateCapture& capture, cudaStream_t stream) {
  if (count == 0) return;
  cudaMemcpyAsync(to, base + capture.sequence * stride, count * sizeof(float), cudaMemcpyDeviceToDevice,
                  stream);
}

}  // namespace strata::gpu_worker::cuda
