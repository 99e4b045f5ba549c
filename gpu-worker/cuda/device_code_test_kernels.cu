#include "gpu-worker/cuda/device_code_test_kernels.h"

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/split_product.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kBlock = 64;

__global__ void reverse(const float* in, float* out, uint32_t count, uint32_t turns) {
  __shared__ float fixed[1024];
  float* dynamic = dynamic_shared<float>();
  const uint32_t i = threadIdx.x;
  float value = in[i];
  for (uint32_t turn = 0; turn < turns; ++turn) {
    float* buffer = turn % 2 == 0 ? fixed : dynamic;
    buffer[count - 1 - i] = value;
    __syncthreads();
    value = buffer[i];
  }
  out[i] = value;
}

__global__ void warp_words(const int* in, int* out, uint32_t threads) {
  const uint32_t i = threadIdx.x;
  const int value = in[i];
  out[0 * threads + i] = __shfl_xor_sync(kAllLanes, value, 1);
  out[1 * threads + i] = __shfl_up_sync(kAllLanes, value, 2);
  out[2 * threads + i] = __shfl_down_sync(kAllLanes, value, 3, 16);
  out[3 * threads + i] = __shfl_sync(kAllLanes, value, 5);
  out[4 * threads + i] = static_cast<int>(__ballot_sync(kAllLanes, value & 1));
#if defined(STRATA_CUDA_EMULATION) || __CUDA_ARCH__ >= 800
  out[5 * threads + i] = __reduce_add_sync(kAllLanes, value);
#else
  int sum = value;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  out[5 * threads + i] = sum;
#endif
}

__global__ void halves(const int* in, int* out) {
  const uint32_t i = threadIdx.x;
  const bool low = lane_index() < 16;
  const uint32_t mask = low ? 0x0000ffffu : 0xffff0000u;
  int value = in[i];
  for (int turn = 0; turn < (low ? 1 : 3); ++turn) {
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
  }
  __syncwarp();
  out[i] = value;
}

__global__ void count_all(const int* in, AtomicTotals* totals) {
  const int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&totals->sum, static_cast<unsigned>(value));
  atomicMax(&totals->max, value);
  atomicMin(&totals->min, value);
  atomicAdd(&totals->ones, 1.0f);
}

__device__ uint32_t bytes_at(const int8_t* matrix, uint32_t first, uint32_t step) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i)
    word |= static_cast<uint32_t>(static_cast<uint8_t>(matrix[first + i * step])) << 8 * i;
  return word;
}

__global__ void multiply(const int8_t* a, const int8_t* b, int* d, uint32_t k) {
  const uint32_t g = lane_index() / 4, t = lane_index() % 4;
  int sums[4] = {1, 1, 1, 1};  // mma adds to what is there
  const uint32_t low_b = bytes_at(b, 4 * t * 8 + g, 8);
  const uint32_t low_a[2] = {bytes_at(a, g * k + 4 * t, 1), bytes_at(a, (g + 8) * k + 4 * t, 1)};
  if (k == 16) {
    mma_s8_k16(sums, low_a, low_b);
  } else {
    const uint32_t all_a[4] = {low_a[0], low_a[1], bytes_at(a, g * k + 16 + 4 * t, 1),
                               bytes_at(a, (g + 8) * k + 16 + 4 * t, 1)};
    const uint32_t all_b[2] = {low_b, bytes_at(b, (16 + 4 * t) * 8 + g, 8)};
    mma_s8_k32(sums, all_a, all_b);
  }
  for (uint32_t i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i] - 1;
}

__global__ void multiply_floats(const float* a, const float* b, float* d) {
  const uint32_t g = lane_index() / 4, t = lane_index() % 4;
  uint32_t rounded_a[4], rounded_b[2];
  for (uint32_t i = 0; i < 4; ++i) rounded_a[i] = tf32_of(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
  for (uint32_t i = 0; i < 2; ++i) rounded_b[i] = tf32_of(b[(t + i * 4) * 8 + g]);
  float rounded[4] = {1.0f, 1.0f, 1.0f, 1.0f};  // mma adds to what is there
  mma_tf32_k8(rounded, rounded_a, rounded_b);
  float split[1][1][4] = {};
  add_product(
      split, 1, [&](uint32_t, uint32_t row, uint32_t k) { return a[row * 8 + k]; },
      [&](uint32_t k, uint32_t column) { return b[k * 8 + column]; });
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t at = (g + i / 2 * 8) * 8 + 2 * t + i % 2;
    d[at] = rounded[i] - 1.0f;
    d[128 + at] = split[0][0][i];
  }
}

__global__ void dots(const int* a, const int* b, const int* sum, int* out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = dot4(a[i], b[i], sum[i]);
  out[count + i] = dot2_low(a[i], b[i], sum[i]);
  out[2 * count + i] = dot2_high(a[i], b[i], sum[i]);
}

__global__ void copy_in_stages(const uint4* in, uint4* out, uint32_t stages) {
  uint4* buffer = dynamic_shared<uint4>();  // (2, 128)
  const uint32_t i = threadIdx.x;
  copy16_async(&buffer[i], &in[i]);
  copies_commit();
  for (uint32_t stage = 0; stage < stages; ++stage) {
    if (stage + 1 < stages) copy16_async(&buffer[(stage + 1) % 2 * 128 + i], &in[(stage + 1) * 128 + i]);
    copies_commit();
    copies_wait<1>();
    __syncthreads();
    out[stage * 128 + i] = buffer[stage % 2 * 128 + 127 - i];
    __syncthreads();
  }
}

__global__ void wait_for(const uint32_t* word, uint32_t value, uint32_t* counter, uint32_t* answer) {
  if (threadIdx.x == 0) {
    while (load_acquire_system(word) != value) wait_a_little();
    *counter += 1;
    store_release_system(answer, value + 1);
  }
  __syncthreads();
}

__global__ void round_trip(const float* in, uint16_t* half_bits, float* out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const __half h = __float2half_rn(in[i]);
  half_bits[i] = __half_as_ushort(h);
  out[i] = __half2float(h);
}

__global__ void bit_words(const uint32_t* in, uint32_t* out) {
  out[0] = __byte_perm(in[0], in[1], in[2]);
  out[1] = static_cast<uint32_t>(__popc(in[0]));
  out[2] = static_cast<uint32_t>(__ffs(static_cast<int>(in[0])));
  out[3] = static_cast<uint32_t>(__clz(static_cast<int>(in[0])));
  out[4] = __brev(in[0]);
}

__global__ void scale(float* values, uint32_t count, float factor, float addend) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = values[i] * factor + addend;
}

__global__ void missed_barrier() {
  if (threadIdx.x == 3) return;
  __syncthreads();
}

__global__ void missed_shuffle(int* out) {
  if (lane_index() == 7) return;
  out[threadIdx.x] = __shfl_sync(kAllLanes, 1, 0);
}

__global__ void copy_unawaited(const uint4* in, uint4* out) {
  uint4* buffer = dynamic_shared<uint4>();
  copy16_async(&buffer[threadIdx.x], &in[threadIdx.x]);
  copies_commit();
  out[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void store(float* out, uint64_t index) { out[index] = 1.0f; }

LaunchShape one_block(uint32_t threads, std::size_t shared_bytes = 0) {
  return {dim3(1), dim3(threads), shared_bytes};
}
LaunchShape blocks_for(uint32_t count) { return {dim3((count + kBlock - 1) / kBlock), dim3(kBlock)}; }

}  // namespace

void run_reversal(const float* in, float* out, uint32_t count, uint32_t turns, cudaStream_t stream) {
  launch(reverse, one_block(count, count * sizeof(float)), stream, in, out, count, turns);
}
void run_warp_words(const int* in, int* out, uint32_t threads, cudaStream_t stream) {
  launch(warp_words, one_block(threads), stream, in, out, threads);
}
void run_halves(const int* in, int* out, uint32_t threads, cudaStream_t stream) {
  launch(halves, one_block(threads), stream, in, out);
}
void run_atomics(const int* in, AtomicTotals* totals, uint32_t blocks, cudaStream_t stream) {
  launch(count_all, {dim3(blocks), dim3(kBlock)}, stream, in, totals);
}
void run_mma(const int8_t* a, const int8_t* b, int* d, uint32_t k, cudaStream_t stream) {
  launch(multiply, one_block(kWarp), stream, a, b, d, k);
}
void run_mma_floats(const float* a, const float* b, float* d, cudaStream_t stream) {
  launch(multiply_floats, one_block(kWarp), stream, a, b, d);
}
void run_dot4(const int* a, const int* b, const int* sum, int* out, uint32_t count, cudaStream_t stream) {
  launch(dots, blocks_for(count), stream, a, b, sum, out, count);
}
void run_async_copy(const uint4* in, uint4* out, uint32_t stages, cudaStream_t stream) {
  launch(copy_in_stages, one_block(128, 2 * 128 * sizeof(uint4)), stream, in, out, stages);
}
void run_wait_for(const uint32_t* word, uint32_t value, uint32_t* counter, uint32_t* answer,
                  cudaStream_t stream) {
  launch(wait_for, one_block(kWarp), stream, word, value, counter, answer);
}
void run_half_round_trip(const float* in, uint16_t* half_bits, float* out, uint32_t count,
                         cudaStream_t stream) {
  launch(round_trip, blocks_for(count), stream, in, half_bits, out, count);
}
void run_bit_words(const uint32_t* in, uint32_t* out, cudaStream_t stream) {
  launch(bit_words, one_block(1), stream, in, out);
}
void run_scale(float* values, uint32_t count, float factor, float addend, cudaStream_t stream) {
  launch(scale, blocks_for(count), stream, values, count, factor, addend);
}
void run_missed_barrier(cudaStream_t stream) { launch(missed_barrier, one_block(64), stream); }
void run_missed_shuffle(int* out, cudaStream_t stream) {
  launch(missed_shuffle, one_block(kWarp), stream, out);
}
void run_unawaited_copy(const uint4* in, uint4* out, cudaStream_t stream) {
  launch(copy_unawaited, one_block(kWarp, kWarp * sizeof(uint4)), stream, in, out);
}
void run_store(float* out, uint64_t index, cudaStream_t stream) {
  launch(store, one_block(1), stream, out, index);
}

}  // namespace strata::gpu_worker::cuda
