#include "gpu-worker/cuda/formats_test_kernels.h"

#include "gpu-worker/cuda/formats.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

template <class F>
__global__ void units_kernel(const uint8_t* data, TestUnit* units) {
  const uint8_t* block = data + uint64_t{blockIdx.x} * F::kBlockBytes;
  const int k = static_cast<int>(threadIdx.x);
  TestUnit& unit = units[blockIdx.x * F::kUnits + threadIdx.x];
  uint32_t w[8];
  load_weights<F>(block, k, w);
  for (int i = 0; i < 32; ++i) {
    unit.w[i] = static_cast<int8_t>(w[i / 4] >> (8 * (i % 4)));
    unit.dequantized[i] = dequantized<F>(block, k, i, unit.w[i]);
  }
  for (int half = 0; half < 2; ++half) {
    const int group = F::kScaleGroup == 16 ? 2 * k + half : k;
    unit.factor[half] = F::factor(block, 2 * k + half);
    unit.scale[half] = F::scale(block, group);
    unit.minimum[half] = F::minimum(block, group);
  }
  unit.minimum_factor = F::minimum_factor(block);
}

template <class F>
__global__ void floats_kernel(const uint8_t* data, float* values) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = F::one(data + uint64_t{i} * F::kValueBytes);
}

}  // namespace

bool read_units(TensorType type, const std::byte* data, uint32_t blocks, TestUnit* units,
                cudaStream_t stream) {
  return QuantizedFormats::dispatch(type, [&](auto format) {
    using F = decltype(format);
    launch(units_kernel<F>, {.grid = dim3(blocks), .block = dim3(F::kUnits)}, stream,
           reinterpret_cast<const uint8_t*>(data), units);
  });
}

bool read_floats(TensorType type, const std::byte* data, uint32_t count, float* values, cudaStream_t stream) {
  return FloatFormats::dispatch(type, [&](auto format) {
    launch(floats_kernel<decltype(format)>, {.grid = dim3(count), .block = dim3(1)}, stream,
           reinterpret_cast<const uint8_t*>(data), values);
  });
}

}  // namespace strata::gpu_worker::cuda
