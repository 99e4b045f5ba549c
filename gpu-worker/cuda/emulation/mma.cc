// Matrix products of a warp, from the fragments of its 32 lanes (../device_code.cuh).

#include <bit>

#include "gpu-worker/cuda/emulation/device_code.h"
#include "gpu-worker/cuda/emulation/host_api.h"

namespace strata::gpu_worker::cuda::emulation {
namespace {

// The lanes wait in meet() with their fragments on their stacks until the last one has multiplied.
template <class D>
struct Fragments {
  D* d;
  const uint32_t* a;
  const uint32_t* b;
};
template <class D>
Fragments<D> fragments_of(const Lane& lane) {
  return *reinterpret_cast<const Fragments<D>*>(lane.in);
}

int byte_of(uint32_t word, uint32_t index) { return static_cast<int8_t>(word >> 8 * index & 0xffu); }

template <uint32_t kDepth>
void multiply(Lane (&lanes)[32], uint32_t) {
  int8_t a[16][kDepth];
  int8_t b[kDepth][8];
  const auto fragments = [&](uint32_t lane) { return fragments_of<int>(lanes[lane]); };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t part = 0; part < kDepth / 16; ++part) {  // 16 columns of a, 16 rows of b
      for (uint32_t i = 0; i < 4; ++i) {
        a[g][16 * part + 4 * t + i] = static_cast<int8_t>(byte_of(fragments(lane).a[2 * part], i));
        a[g + 8][16 * part + 4 * t + i] = static_cast<int8_t>(byte_of(fragments(lane).a[2 * part + 1], i));
        b[16 * part + 4 * t + i][g] = static_cast<int8_t>(byte_of(fragments(lane).b[part], i));
      }
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = g + i / 2 * 8, column = 2 * t + i % 2;
      int sum = fragments(lane).d[i];
      for (uint32_t k = 0; k < kDepth; ++k) sum += a[row][k] * b[k][column];
      fragments(lane).d[i] = sum;
    }
  }
}

// Exact products, summed in double precision and rounded once: a GPU is not as accurate, and tests must not
// depend on it.
void multiply_tf32(Lane (&lanes)[32], uint32_t) {
  const auto number = [](uint32_t bits) { return double{std::bit_cast<float>(bits & 0xffffe000u)}; };
  double a[16][8];
  double b[8][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const auto fragments = fragments_of<float>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = number(fragments.a[i]);
    for (uint32_t i = 0; i < 2; ++i) b[t + i * 4][g] = number(fragments.b[i]);
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const auto fragments = fragments_of<float>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      double sum = fragments.d[i];
      for (uint32_t k = 0; k < 8; ++k) sum += a[g + i / 2 * 8][k] * b[k][2 * t + i % 2];
      fragments.d[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void mma_s8(int k, int* d, const uint32_t* a, const uint32_t* b) {
  if (sm_version() < 80) kernel_fault("mma_s8 needs sm_80");
  const Fragments<int> fragments = {d, a, b};
  meet(0xffffffffu, k == 32 ? "mma_s8_k32" : "mma_s8_k16", reinterpret_cast<uint64_t>(&fragments), 0,
       k == 32 ? multiply<32> : multiply<16>);
}

void mma_tf32(float* d, const uint32_t* a, const uint32_t* b) {
  if (sm_version() < 80) kernel_fault("mma_tf32 needs sm_80");
  const Fragments<float> fragments = {d, a, b};
  meet(0xffffffffu, "mma_tf32_k8", reinterpret_cast<uint64_t>(&fragments), 0, multiply_tf32);
}

}  // namespace strata::gpu_worker::cuda::emulation
