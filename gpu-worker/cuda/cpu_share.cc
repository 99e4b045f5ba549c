#include "gpu-worker/cuda/cpu_share.h"

#include <algorithm>
#include <bit>

namespace strata::gpu_worker::cuda {
namespace {

// Shares of a window's time: between them the split is good. Never waiting means that the workers had time
// left.
constexpr double kWaitsLittle = 0.02, kWaitsLong = 0.06;
constexpr double kStep = 1.0 / 16;

}  // namespace

uint32_t CpuShare::bucket(uint32_t rows) {
  return std::min(static_cast<uint32_t>(std::bit_width(rows)), kBuckets - 1);
}

void CpuShare::window_took(uint32_t rows, double cpu_wait, double window) {
  double& share = shares_[bucket(rows)];
  if (cpu_wait < kWaitsLittle * window) share += kStep;
  // Far off, as with few cores at the beginning, in few windows.
  if (cpu_wait > kWaitsLong * window) share -= std::max(kStep, share * cpu_wait / window / 2);
  share = std::clamp(share, 0.0, 1.0);
}

}  // namespace strata::gpu_worker::cuda
