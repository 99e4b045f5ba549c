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
constexpr uint32_t kRowsInFours = 64;       // enough work for threads with four columns
constexpr uint32_t kRowsPerLaunch = 65535;  // grid index y

// Neighbouring values of a thread.
template <int kValues>
struct Values {
  float of[kValues] = {};

  __device__ void load(const float* from) {
    if constexpr (kValues == 4) {
      if (aligned(from)) {
        const float4 v = *reinterpret_cast<const float4*>(from);
        of[0] = v.x, of[1] = v.y, of[2] = v.z, of[3] = v.w;
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) of[i] = from[i];
  }
  __device__ void store(float* to) const {
    if constexpr (kValues == 4) {
      if (aligned(to)) {
        *reinterpret_cast<float4*>(to) = {of[0], of[1], of[2], of[3]};
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) to[i] = of[i];
  }
  __device__ static bool aligned(const float* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }
  // this = scale * factor + addend
  __device__ void fma(float scale, const Values& factor, const Values& addend) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) of[i] = fmaf(scale, factor.of[i], addend.of[i]);
  }
};

template <int kValues>
__global__ void __launch_bounds__(kThreads) combine_kernel(CombineArgs args, uint32_t first_row) {
  const uint32_t row = first_row + blockIdx.y, hidden = args.hidden;
  const uint32_t j = (blockIdx.x * kThreads + threadIdx.x) * kValues;
  let_next_kernel_begin();
  await_earlier_kernels();
  if (j >= hidden) return;
  Values<kValues> stream[kStreamsMax], shared, y;
  float* x = args.x + uint64_t{row} * args.streams * hidden + j;
#pragma unroll
  for (uint32_t c = 0; c < kStreamsMax; ++c) {
    if (c < args.streams) stream[c].load(x + uint64_t{c} * hidden);
  }
  float shared_gate = 0.0f;
  if (args.shared.data != nullptr) {
    shared.load(args.shared.data + row * args.shared.stride + j);
    shared_gate = args.shared_gate[row * args.shared_gate_stride];
  }

  for (uint32_t first = 0; first < args.top_k; first += kPartsAtOnce) {
    Values<kValues> part[kPartsAtOnce];
    float weight[kPartsAtOnce] = {};
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      if (first + i >= args.top_k) continue;
      const uint64_t pair = uint64_t{row} * args.top_k + first + i;
      const uint64_t remote = args.remote == nullptr ? 0 : args.remote[pair];
      const float* source = remote == 0 ? args.parts + pair * hidden : reinterpret_cast<const float*>(remote);
      part[i].load(source + j);
      weight[i] = args.weights[pair];
    }
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      if (first + i < args.top_k) y.fma(weight[i], part[i], y);
    }
  }
  if (args.shared.data != nullptr) y.fma(sigmoid_value(shared_gate), shared, y);
  if (args.y != nullptr) y.store(args.y + uint64_t{row} * hidden + j);
#pragma unroll
  for (uint32_t c = 0; c < kStreamsMax; ++c) {
    if (c >= args.streams) continue;
    stream[c].fma(args.inject[uint64_t{row} * args.streams + c], y, stream[c]);
    stream[c].store(x + uint64_t{c} * hidden);
  }
}

}  // namespace

void combine(const CombineArgs& args, cudaStream_t stream) {
  CHECK(args.rows > 0 && args.hidden > 0 && args.streams <= kStreamsMax, "{} streams", args.streams);
  CHECK(args.streams == 0 || (args.x != nullptr && args.inject != nullptr));
  CHECK(args.shared.data == nullptr || args.shared_gate != nullptr);
  const bool in_fours = args.rows >= kRowsInFours && args.hidden % 4 == 0;
  const uint32_t columns = kThreads * (in_fours ? 4 : 1);
  for (uint32_t first = 0; first < args.rows; first += kRowsPerLaunch) {
    launch(in_fours ? combine_kernel<4> : combine_kernel<1>,
           {.grid = dim3((args.hidden + columns - 1) / columns, std::min(kRowsPerLaunch, args.rows - first)),
            .block = kThreads,
            .early = true},
           stream, args, first);
  }
}

}  // namespace strata::gpu_worker::cuda
