#pragma once
// Weights that come next. While a window waits for the CPU, the GPU's own memory is idle: await_boards()
// brings what the next layer begins with into the second-level cache meanwhile.

#include <cstddef>
#include <cstdint>

namespace strata::gpu_worker::cuda {

struct DeviceModel;

// In device memory, in the order in which they are read.
struct WeightsAhead {
  struct Span {
    const std::byte* begin = nullptr;
    uint64_t bytes = 0;
  };
  static constexpr uint32_t kSpansMax = 10;
  Span spans[kSpansMax];
  uint32_t count = 0;
};

// What the first kernels of `layer` read, cut at `bytes` in all; the layer behind the last one is the end of
// the window, with the head.
WeightsAhead weights_ahead(const DeviceModel& model, std::size_t layer, uint64_t bytes);

}  // namespace strata::gpu_worker::cuda
