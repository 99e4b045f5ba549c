#pragma once
// What kernels need beyond plain CUDA C++: everything that is PTX, and everything that the emulation computes
// in another way, stands here behind functions. Blocks are one-dimensional.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ inline uint32_t lane_index() { return threadIdx.x % kWarp; }
__device__ inline uint32_t warp_index() { return threadIdx.x / kWarp; }

#ifdef STRATA_CUDA_EMULATION
#include "gpu-worker/cuda/emulation/device_code_emulated.inc"
#else

// The block's dynamic shared memory, aligned to 16.
template <class T>
__device__ inline T* dynamic_shared() {
  extern __shared__ uint4 strata_dynamic_shared[];
  return reinterpret_cast<T*>(strata_dynamic_shared);
}

// Four products of signed bytes, summed: exact.
__device__ inline int dot4(int a, int b, int sum) { return __dp4a(a, b, sum); }

// Copies 16 aligned bytes from global to shared memory, past the registers where the GPU can (sm_80). The
// bytes are there after copies_commit() of this thread, copies_wait<n>() (all but the last n commits are
// complete) and a barrier for other threads.
__device__ inline void copy16_async(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ inline void copies_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ inline void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// d (16, 8) += a (16, 32) . b (32, 8) in signed bytes with exact int32 sums, over the lanes of a warp. With g
// = lane / 4 and t = lane % 4: a[0] row g, a[1] row g + 8, both columns 4t..4t+3; a[2], a[3] the same rows,
// columns 16 + 4t..; b[0] column g, rows 4t..4t+3, b[1] rows 16 + 4t..; d[0], d[1] row g, columns 2t and 2t +
// 1; d[2], d[3] row g + 8. Needs sm_80.
__device__ inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}
// The same with a (16, 16), b (16, 8): a[0] row g, a[1] row g + 8, columns 4t..4t+3; b column g, rows
// 4t..4t+3. Needs sm_80.
__device__ inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
#else
  __trap();
#endif
}

// Words that another processor reads and writes (page-locked shared memory). A release makes everything
// visible that this thread wrote before; an acquire makes everything visible that the other side wrote before
// its release.
__device__ inline uint32_t load_acquire_system(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline uint64_t load_acquire_system(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline void store_release_system(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline void store_release_system(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// One turn of a loop that waits for such a word.
__device__ inline void wait_a_little() { __nanosleep(100); }

#endif

}  // namespace strata::gpu_worker::cuda
