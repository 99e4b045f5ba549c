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

// The block's dynamic shared memory, aligned to 16.
template <class T>
__device__ inline T* dynamic_shared();

// Four products of signed bytes, summed: exact.
__device__ inline int dot4(int a, int b, int sum);
// Two signed 16-bit numbers by the signed bytes 0 and 1 of b, or by 2 and 3, summed: exact.
__device__ inline int dot2_low(int a, int b, int sum);
__device__ inline int dot2_high(int a, int b, int sum);

// Copies 16 aligned bytes from global to shared memory, past the registers where the GPU can (sm_80). The
// bytes are there after copies_commit() of this thread, copies_wait<n>() (all but the last n commits are
// complete) and a barrier for other threads.
__device__ inline void copy16_async(void* shared, const void* global);
__device__ inline void copies_commit();
template <int kPending>
__device__ inline void copies_wait();

// For kernels that are launched early (LaunchShape::early), while the kernel before them in the stream still
// runs. They may load weights before await_earlier_kernels(); what earlier kernels write or read they touch
// only behind it, and every thread that does comes past it. Not through __ldg(): that is for what nobody
// writes while the kernel is there. Where the kernel was not launched early it costs nothing.
__device__ inline void await_earlier_kernels();
// From here on the next kernel of the stream may begin, if it is one of those. Best called first of all; what
// this kernel writes is still only seen by the next one when this one has ended.
__device__ inline void let_next_kernel_begin();

// Brings the 32 bytes of device memory around `at` into the second-level cache; nobody waits for them.
__device__ inline void prefetch_second_level(const std::byte* at);

// d (16, 8) += a (16, 32) . b (32, 8) in signed bytes with exact int32 sums, over the lanes of a warp. With g
// = lane / 4 and t = lane % 4: a[0] row g, a[1] row g + 8, both columns 4t..4t+3; a[2], a[3] the same rows,
// columns 16 + 4t..; b[0] column g, rows 4t..4t+3, b[1] rows 16 + 4t..; d[0], d[1] row g, columns 2t and 2t +
// 1; d[2], d[3] row g + 8. Needs sm_80.
__device__ inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
// The same with a (16, 16), b (16, 8): a[0] row g, a[1] row g + 8, columns 4t..4t+3; b column g, rows
// 4t..4t+3. Needs sm_80.
__device__ inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b);
// The same with c in the place of all four d before: a constant takes no instruction for each product.
__device__ inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int c);
__device__ inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b, int c);

// x rounded to the 11 significant bits of a tf32, as the bits of a float; a tie goes away from zero. Needs
// sm_80.
__device__ inline uint32_t tf32_of(float x);
// d (16, 8) += a (16, 8) . b (8, 8) with float32 sums whose order and rounding are the GPU's own; of a and b,
// bits of floats, the lowest 13 bits are not read. With g and t as above: a[0] row g, a[1] row g + 8, both
// column t; a[2], a[3] the same rows, column t + 4; b[0] column g, row t, b[1] row t + 4; d as above. Needs
// sm_80.
__device__ inline void mma_tf32_k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// Words that another processor reads and writes (page-locked shared memory). A release makes everything
// visible that this thread wrote before; an acquire makes everything visible that the other side wrote before
// its release.
__device__ inline uint32_t load_acquire_system(const uint32_t* word);
__device__ inline uint64_t load_acquire_system(const uint64_t* word);
__device__ inline void store_release_system(uint32_t* word, uint32_t value);
__device__ inline void store_release_system(uint64_t* word, uint64_t value);
// One turn of a loop that waits for such a word.
__device__ inline void wait_a_little();
// A clock that all blocks share.
__device__ inline uint64_t device_nanoseconds();

}  // namespace strata::gpu_worker::cuda

#ifdef STRATA_CUDA_EMULATION
#include "gpu-worker/cuda/emulation/device_code.h"
#else
#include "gpu-worker/cuda/device_code_ptx.cuh"
#endif
