#pragma once
// How many of the experts that are not resident the expert workers compute in windows that copy the others:
// as many as they are done with when the last copy has landed. Learned from window to window, for windows of
// like size.

#include <array>
#include <cstdint>

namespace strata::gpu_worker::cuda {

class CpuShare {
 public:
  // 0 to 1, of the experts of each layer.
  double of(uint32_t rows) const { return shares_[bucket(rows)]; }
  // A window with the share of its size is over; cpu_wait: what the device waited for the workers' answers
  // behind the copies. Seconds.
  void window_took(uint32_t rows, double cpu_wait, double window);

 private:
  static constexpr uint32_t kBuckets = 16;  // by powers of two
  static uint32_t bucket(uint32_t rows);

  static constexpr double kFirst = 0.75;
  std::array<double, kBuckets> shares_ = [] {
    std::array<double, kBuckets> shares{};
    shares.fill(kFirst);
    return shares;
  }();
};

}  // namespace strata::gpu_worker::cuda
