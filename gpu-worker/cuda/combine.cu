#include "gpu-worker/cuda/combine.h"

#include <algorithm>

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/math.cuh"
#include "services/base/check.h"
#include "services/base/limits.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 64;           // one row of the real model: 40 blocks
constexpr uint32_t kPartsAtOnce = 16;       // asked for before the first is used
constexpr uint32_t kRowsPerLaunch = 65535;  // grid index y

__global__ void __launch_bounds__(kThreads) combine_kernel(CombineArgs args, uint32_t first_row) {
  const uint32_t row = first_row + blockIdx.y, j = blockIdx.x * kThreads + threadIdx.x, hidden = args.hidden;
  let_next_kernel_begin();
  await_earlier_kernels();
  if (j >= hidden) return;
  float stream[kStreamsMax] = {};
  float* x = args.x + uint64_t{row} * args.streams * hidden + j;
#pragma unroll
  for (uint32_t c = 0; c < kStreamsMax; ++c) {
    if (c < args.streams) stream[c] = x[uint64_t{c} * hidden];
  }
  float shared = 0.0f, shared_gate = 0.0f;
  if (args.shared.data != nullptr) {
    shared = args.shared.data[row * args.shared.stride + j];
    shared_gate = args.shared_gate[row * args.shared_gate_stride];
  }

  float y = 0.0f;
  for (uint32_t first = 0; first < args.top_k; first += kPartsAtOnce) {
    float part[kPartsAtOnce] = {}, weight[kPartsAtOnce] = {};
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      if (first + i >= args.top_k) continue;
      const uint64_t pair = uint64_t{row} * args.top_k + first + i;
      const uint64_t remote = args.remote == nullptr ? 0 : args.remote[pair];
      const float* source = remote == 0 ? args.parts + pair * hidden : reinterpret_cast<const float*>(remote);
      part[i] = source[j];
      weight[i] = args.weights[pair];
    }
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      if (first + i < args.top_k) y = fmaf(weight[i], part[i], y);
    }
  }
  if (args.shared.data != nullptr) y = fmaf(sigmoid_value(shared_gate), shared, y);
  if (args.y != nullptr) args.y[uint64_t{row} * hidden + j] = y;
#pragma unroll
  for (uint32_t c = 0; c < kStreamsMax; ++c) {
    if (c < args.streams)
      x[uint64_t{c} * hidden] = fmaf(args.inject[uint64_t{row} * args.streams + c], y, stream[c]);
  }
}

}  // namespace

void combine(const CombineArgs& args, cudaStream_t stream) {
  CHECK(args.rows > 0 && args.hidden > 0 && args.streams <= kStreamsMax, "{} streams", args.streams);
  CHECK(args.streams == 0 || (args.x != nullptr && args.inject != nullptr));
  CHECK(args.shared.data == nullptr || args.shared_gate != nullptr);
  for (uint32_t first = 0; first < args.rows; first += kRowsPerLaunch) {
    launch(
        combine_kernel,
        {.grid = dim3((args.hidden + kThreads - 1) / kThreads, std::min(kRowsPerLaunch, args.rows - first)),
         .block = kThreads,
         .early = true},
        stream, args, first);
  }
}

}  // namespace strata::gpu_worker::cuda
