#pragma once
// What ../device_code.cuh declares, on the CPU.

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "gpu-worker/cuda/emulation/kernel_words.h"

namespace strata::gpu_worker::cuda {

namespace emulation {
// Runs one mma of the warp: d (16, 8) += a (16, k) . b (k, 8).
void mma_s8(int k, int* d, const uint32_t* a, const uint32_t* b);
// The same for (16, 8) . (8, 8) in tf32.
void mma_tf32(float* d, const uint32_t* a, const uint32_t* b);
}  // namespace emulation

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared_memory());
}

inline int dot4(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return sum;
}
inline int dot2_low(int a, int b, int sum) {
  return sum + static_cast<int16_t>(a) * static_cast<int8_t>(b) + (a >> 16) * static_cast<int8_t>(b >> 8);
}
inline int dot2_high(int a, int b, int sum) { return dot2_low(a, b >> 16, sum); }

inline void copy16_async(void* shared, const void* global) {
  emulation::add_copy(static_cast<uint4*>(shared), static_cast<const uint4*>(global));
}
inline void await_earlier_kernels() {}
inline void let_next_kernel_begin() {}
inline void prefetch_second_level(const std::byte* at) {
  static_cast<void>(*static_cast<const volatile std::byte*>(at));  // faults where no memory is
}
inline void copies_commit() { emulation::commit_copies(); }
template <int kPending>
void copies_wait() {
  emulation::wait_for_copies(kPending);
}

inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::mma_s8(32, d, a, b);
}
inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) { emulation::mma_s8(16, d, a, &b); }
inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int c) {
  for (int& sum : d) sum = c;
  mma_s8_k32(d, a, b);
}
inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b, int c) {
  for (int& sum : d) sum = c;
  mma_s8_k16(d, a, b);
}

inline uint32_t tf32_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (finite ? bits + 0x1000u : bits) & 0xffffe000u;  // a NaN of the project has a high bit set and stays
}
inline void mma_tf32_k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::mma_tf32(d, a, b);
}

inline uint32_t load_acquire_system(const uint32_t* word) {
  return std::atomic_ref(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
}
inline uint64_t load_acquire_system(const uint64_t* word) {
  return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}
inline void store_release_system(uint32_t* word, uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}
inline void store_release_system(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}
inline void wait_a_little() { emulation::wait_a_turn(); }
inline uint64_t device_nanoseconds() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace strata::gpu_worker::cuda
