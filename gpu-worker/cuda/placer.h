#pragma once
// Cuts one block of device memory into arrays. Without a block it only counts, so that the plan of an
// allocation and the allocation itself are one piece of code and cannot disagree.

#include <cstddef>
#include <cstdint>

namespace strata::gpu_worker::cuda {

class Placer {
 public:
  // Device allocations begin at multiples of this, and so does everything placed.
  static constexpr uint64_t kAlignment = 256;

  Placer() = default;
  explicit Placer(std::byte* base) : base_(reinterpret_cast<uintptr_t>(base)) {}

  // Room for `count` values; an address that must not be used when there is no block.
  template <class T>
  T* take(uint64_t count) {
    const uint64_t begin = used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(base_ + begin);
  }
  uint64_t used_bytes() const { return used_; }

 private:
  uintptr_t base_ = kAlignment;  // not null, so that addresses can be computed with
  uint64_t used_ = 0;
};

}  // namespace strata::gpu_worker::cuda
