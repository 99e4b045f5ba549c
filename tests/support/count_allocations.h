#pragma once
// Counts what a test program allocates, by replacing its operator new: to be included by one file of a
// program. Not under sanitizers, which bring an operator new of their own.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace strata::tests {
inline std::atomic<uint64_t> allocations{0};
}  // namespace strata::tests

void* operator new(std::size_t bytes) {
  strata::tests::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  strata::tests::allocations.fetch_add(1, std::memory_order_relaxed);
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step); memory != nullptr)
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
