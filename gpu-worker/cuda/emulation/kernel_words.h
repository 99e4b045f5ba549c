#pragma once
// The words of CUDA C++ in kernels: qualifiers, the indices, and everything at which threads of a block meet.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gpu-worker/cuda/emulation/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ \
  static thread_local  // a block runs on one OS thread, and blocks of one OS thread one after the other
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

namespace strata::gpu_worker::cuda::emulation {

// What a thread brings to a meeting of its warp and takes from it.
struct Lane {
  uint64_t in = 0;
  uint32_t argument = 0;
  uint64_t out = 0;
};
// Called once all lanes of the mask are there; sets their `out`.
using Meeting = void (*)(Lane (&lanes)[32], uint32_t mask);

// The lanes of `mask` wait for each other. `what` names the function in the text that ends the process when
// they do not all come.
uint64_t meet(uint32_t mask, const char* what, uint64_t in, uint32_t argument, Meeting meeting);
// All threads of the block wait for each other; the sum of what they bring.
uint32_t meet_block(const char* what, uint32_t in);
// Lets the other threads of the block, and then other OS threads, go on.
void wait_a_turn();
void* dynamic_shared_memory();
// Asynchronous copies of the thread that runs now (pending_copies.h).
void add_copy(uint4* to, const uint4* from);
void commit_copies();
void wait_for_copies(uint32_t pending);
// A fault of a kernel: ends the process with the kernel, the block and the thread.
[[noreturn]] void kernel_fault(const char* what);

void take_from_lane(Lane (&lanes)[32], uint32_t mask);  // out = in of lane `argument`
void collect_bits(Lane (&lanes)[32], uint32_t mask);    // out = a bit for each lane whose `in` is not 0
void collect_equal(Lane (&lanes)[32], uint32_t mask);   // out = a bit for each lane with the same `in`

template <class T>
T from_lane(uint32_t mask, const char* what, T value, uint32_t lane) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = meet(mask, what, bits, lane, take_from_lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T, class Op>
T reduce_lanes(uint32_t mask, const char* what, T value, Op) {
  const auto bits = static_cast<uint64_t>(static_cast<uint32_t>(value));
  const uint64_t out = meet(mask, what, bits, 0, [](Lane(&lanes)[32], uint32_t members) {
    bool first = true;
    T sum{};
    for (uint32_t i = 0; i < 32; ++i) {
      if ((members >> i & 1) == 0) continue;
      const T next = static_cast<T>(static_cast<uint32_t>(lanes[i].in));
      sum = first ? next : Op{}(sum, next);
      first = false;
    }
    for (Lane& lane : lanes) lane.out = static_cast<uint32_t>(sum);
  });
  return static_cast<T>(static_cast<uint32_t>(out));
}

inline uint32_t segment_start(int width) { return threadIdx.x % 32 & ~static_cast<uint32_t>(width - 1); }

}  // namespace strata::gpu_worker::cuda::emulation

inline void __syncthreads() { strata::gpu_worker::cuda::emulation::meet_block("__syncthreads", 0); }
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(
      strata::gpu_worker::cuda::emulation::meet_block("__syncthreads_count", predicate != 0));
}
inline int __syncthreads_or(int predicate) {
  return strata::gpu_worker::cuda::emulation::meet_block("__syncthreads_or", predicate != 0) != 0;
}
inline int __syncthreads_and(int predicate) {
  return strata::gpu_worker::cuda::emulation::meet_block("__syncthreads_and", predicate == 0) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  strata::gpu_worker::cuda::emulation::meet(mask, "__syncwarp", 0, 0,
                                            strata::gpu_worker::cuda::emulation::collect_bits);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  using namespace strata::gpu_worker::cuda::emulation;
  return from_lane(mask, "__shfl_sync", value,
                   segment_start(width) + (static_cast<uint32_t>(lane) & static_cast<uint32_t>(width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace strata::gpu_worker::cuda::emulation;
  const uint32_t lane = threadIdx.x % 32;
  return from_lane(mask, "__shfl_up_sync", value, lane - segment_start(width) >= delta ? lane - delta : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace strata::gpu_worker::cuda::emulation;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t room = segment_start(width) + static_cast<uint32_t>(width) - lane;
  return from_lane(mask, "__shfl_down_sync", value, delta < room ? lane + delta : lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  using namespace strata::gpu_worker::cuda::emulation;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t other = lane ^ static_cast<uint32_t>(lane_mask);
  return from_lane(mask, "__shfl_xor_sync", value,
                   other < segment_start(width) + static_cast<uint32_t>(width) ? other : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace strata::gpu_worker::cuda::emulation;
  return static_cast<unsigned>(meet(mask, "__ballot_sync", predicate != 0, 0, collect_bits));
}
inline int __any_sync(unsigned mask, int predicate) {
  using namespace strata::gpu_worker::cuda::emulation;
  return meet(mask, "__any_sync", predicate != 0, 0, collect_bits) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  using namespace strata::gpu_worker::cuda::emulation;
  return meet(mask, "__all_sync", predicate != 0, 0, collect_bits) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  using namespace strata::gpu_worker::cuda::emulation;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(meet(mask, "__match_any_sync", bits, 0, collect_equal));
}

#define STRATA_REDUCE(name, T, expression)                                                              \
  inline T name(unsigned mask, T value) {                                                               \
    return strata::gpu_worker::cuda::emulation::reduce_lanes(mask, #name, value,                        \
                                                             [](T a, T b) -> T { return expression; }); \
  }
STRATA_REDUCE(__reduce_add_sync, unsigned, a + b)
STRATA_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
STRATA_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
STRATA_REDUCE(__reduce_min_sync, int, a < b ? a : b)
STRATA_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
STRATA_REDUCE(__reduce_max_sync, int, a > b ? a : b)
STRATA_REDUCE(__reduce_and_sync, unsigned, a& b)
STRATA_REDUCE(__reduce_or_sync, unsigned, a | b)
STRATA_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef STRATA_REDUCE

inline void __nanosleep(unsigned) { strata::gpu_worker::cuda::emulation::wait_a_turn(); }
[[noreturn]] inline void __trap() { strata::gpu_worker::cuda::emulation::kernel_fault("__trap"); }
