// Matrix products of a warp, from the fragments of its 32 lanes (../device_code.cuh).

#include "gpu-worker/cuda/emulation/device_code.h"
#include "gpu-worker/cuda/emulation/host_api.h"

namespace strata::gpu_worker::cuda::emulation {
namespace {

struct Fragments {
  int* d;
  const uint32_t* a;
  const uint32_t* b;
};

int byte_of(uint32_t word, uint32_t index) { return static_cast<int8_t>(word >> 8 * index & 0xffu); }

template <uint32_t kDepth>
void multiply(Lane (&lanes)[32], uint32_t) {
  int8_t a[16][kDepth];
  int8_t b[kDepth][8];
  const auto fragments = [&](uint32_t lane) { return *reinterpret_cast<const Fragments*>(lanes[lane].in); };
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

}  // namespace

void mma_s8(int k, int* d, const uint32_t* a, const uint32_t* b) {
  if (sm_version() < 80) kernel_fault("mma_s8 needs sm_80");
  // The lanes wait in meet() with their fragments on their stacks until the last one has multiplied.
  const Fragments fragments = {d, a, b};
  meet(0xffffffffu, k == 32 ? "mma_s8_k32" : "mma_s8_k16", reinterpret_cast<uint64_t>(&fragments), 0,
       k == 32 ? multiply<32> : multiply<16>);
}

}  // namespace strata::gpu_worker::cuda::emulation
