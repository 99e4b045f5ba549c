#pragma once
// Kernels of device_code_test.cc: one per thing that kernels may use. One block each unless it says
// otherwise.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace strata::gpu_worker::cuda {

// out[i] = in[count - 1 - i] through static and dynamic shared memory, `turns` times; count is the block's
// size.
void run_reversal(const float* in, float* out, uint32_t count, uint32_t turns, cudaStream_t stream);
// out (6, threads): __shfl_xor 1, __shfl_up 2, __shfl_down 3 in segments of 16, __shfl from lane 5, the
// ballot of odd values, the sum.
void run_warp_words(const int* in, int* out, uint32_t threads, cudaStream_t stream);
// Both halves of each warp shuffle for themselves, a different number of times: out[i] = sum over its half,
// repeated.
void run_halves(const int* in, int* out, uint32_t threads, cudaStream_t stream);
// totals: sum, maximum, minimum, float sum of ones, over `blocks` blocks of 64.
struct AtomicTotals {
  unsigned sum;
  int max;
  int min;
  float ones;
};
void run_atomics(const int* in, AtomicTotals* totals, uint32_t blocks, cudaStream_t stream);
// d (16, 8) = a (16, k) . b (k, 8) row-major, from the fragments that device_code.cuh documents; k is 16
// or 32.
void run_mma(const int8_t* a, const int8_t* b, int* d, uint32_t k, cudaStream_t stream);
// The same for floats, a (16, 8) . b (8, 8), by mma_tf32_k8: d (16, 8) with the operands rounded to tf32, and
// behind it d (16, 8) by add_product (split_product.cuh).
void run_mma_floats(const float* a, const float* b, float* d, cudaStream_t stream);
// out[i] = the dot product of four bytes each, plus sum[i]; out[count + i] and out[2 * count + i] = that of
// two 16-bit numbers and two bytes.
void run_dot4(const int* a, const int* b, const int* sum, int* out, uint32_t count, cudaStream_t stream);
// out = in, through copy16_async in two stages; 128 threads of 16 bytes each per stage.
void run_async_copy(const uint4* in, uint4* out, uint32_t stages, cudaStream_t stream);
// Waits until *word is `value`, then adds 1 to *counter and answers *answer = value + 1.
void run_wait_for(const uint32_t* word, uint32_t value, uint32_t* counter, uint32_t* answer,
                  cudaStream_t stream);
// out = in converted to half and back; words: byte_perm(in[0], in[1], in[2]), popc, ffs, clz of in[0].
void run_half_round_trip(const float* in, uint16_t* half, float* out, uint32_t count, cudaStream_t stream);
void run_bit_words(const uint32_t* in, uint32_t* out, cudaStream_t stream);
// values[i] = values[i] * factor + addend, blocks of 64.
void run_scale(float* values, uint32_t count, float factor, float addend, cudaStream_t stream);
// Thread 3 returns before a barrier that the others reach.
void run_missed_barrier(cudaStream_t stream);
// Lane 7 leaves a shuffle out.
void run_missed_shuffle(int* out, cudaStream_t stream);
// out = in (32 of 16 bytes) through copy16_async, without waiting for it.
void run_unawaited_copy(const uint4* in, uint4* out, cudaStream_t stream);
// Writes out[index].
void run_store(float* out, uint64_t index, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
