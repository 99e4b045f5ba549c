#pragma once
// Functions of kernels that need no other thread: bits, integers, exact float operations, atomics. Functions
// that a GPU computes approximately (__expf, __fdividef, rsqrtf, ...) are left out: their bits would not be
// those of a GPU.

#include <math.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// --- Bits
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
// The low three bits of each nibble of s choose one of the 8 bytes of y:x. (PTX has a use for the fourth; the
// function does not.)
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned out = 0;
  for (unsigned i = 0; i < 32; i += 8) {
    const unsigned choice = s >> i / 2 & 7u;
    out |= static_cast<unsigned>(bytes >> 8 * choice & 0xffu) << i;
  }
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }

// --- Four bytes at once, each for itself
namespace strata::gpu_worker::cuda::emulation {
template <class Op>
unsigned each_byte(unsigned a, unsigned b, Op op) {
  unsigned out = 0;
  for (int i = 0; i < 32; i += 8) {
    out |= (static_cast<unsigned>(op(static_cast<int>(a >> i & 0xffu), static_cast<int>(b >> i & 0xffu))) &
            0xffu)
           << i;
  }
  return out;
}
}  // namespace strata::gpu_worker::cuda::emulation
inline unsigned __vadd4(unsigned a, unsigned b) {
  return strata::gpu_worker::cuda::emulation::each_byte(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return strata::gpu_worker::cuda::emulation::each_byte(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  return strata::gpu_worker::cuda::emulation::each_byte(a, b, [](int x, int y) { return x == y ? 0xff : 0; });
}
inline unsigned __vcmpne4(unsigned a, unsigned b) { return ~__vcmpeq4(a, b); }

// --- Floats, rounded to nearest even
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

namespace strata::gpu_worker::cuda::emulation {
// As a GPU converts: out of range saturates, NaN becomes 0.
template <class T>
T saturated(float x) {
  if (x != x) return 0;
  if (x <= static_cast<float>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (x >= static_cast<float>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}
}  // namespace strata::gpu_worker::cuda::emulation
inline int __float2int_rn(float x) { return strata::gpu_worker::cuda::emulation::saturated<int>(rintf(x)); }
inline int __float2int_rz(float x) { return strata::gpu_worker::cuda::emulation::saturated<int>(truncf(x)); }
inline int __float2int_rd(float x) { return strata::gpu_worker::cuda::emulation::saturated<int>(floorf(x)); }
inline int __float2int_ru(float x) { return strata::gpu_worker::cuda::emulation::saturated<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) {
  return strata::gpu_worker::cuda::emulation::saturated<unsigned>(rintf(x));
}
inline unsigned __float2uint_rz(float x) {
  return strata::gpu_worker::cuda::emulation::saturated<unsigned>(truncf(x));
}

// --- min and max of one type, and of the mixtures that CUDA has
#define STRATA_MIN_MAX(A, B, R)                                                           \
  inline R min(A a, B b) {                                                                \
    return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); \
  }                                                                                       \
  inline R max(A a, B b) {                                                                \
    return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(b) : static_cast<R>(a); \
  }
STRATA_MIN_MAX(int, int, int)
STRATA_MIN_MAX(unsigned, unsigned, unsigned)
STRATA_MIN_MAX(int, unsigned, unsigned)
STRATA_MIN_MAX(unsigned, int, unsigned)
STRATA_MIN_MAX(long, long, long)
STRATA_MIN_MAX(unsigned long, unsigned long, unsigned long)
STRATA_MIN_MAX(long, unsigned long, unsigned long)
STRATA_MIN_MAX(unsigned long, long, unsigned long)
STRATA_MIN_MAX(long long, long long, long long)
STRATA_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
STRATA_MIN_MAX(long long, unsigned long long, unsigned long long)
STRATA_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef STRATA_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

// --- Memory
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Blocks of other streams run at the same time, so these are real atomics; relaxed, as on a GPU.
namespace strata::gpu_worker::cuda::emulation {
template <class T, class Op>
T atomic_update(T* p, Op op) {
  T old;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  for (T next = op(old);
       !__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);) {
    next = op(old);
  }
  return old;
}
template <class T>
concept AtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <class T>
concept AtomicNumber = AtomicInteger<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;
}  // namespace strata::gpu_worker::cuda::emulation

template <strata::gpu_worker::cuda::emulation::AtomicNumber T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](T old) {
    if constexpr (std::is_same_v<T, int>) {
      return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
    } else {
      return old + value;
    }
  });
}
inline int atomicSub(int* p, int value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](int old) {
    return static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value));
  });
}
inline unsigned atomicSub(unsigned* p, unsigned value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](unsigned old) { return old - value; });
}
template <strata::gpu_worker::cuda::emulation::AtomicInteger T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(
      p, [value](T old) { return value < old ? value : old; });
}
template <strata::gpu_worker::cuda::emulation::AtomicInteger T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(
      p, [value](T old) { return value > old ? value : old; });
}
template <strata::gpu_worker::cuda::emulation::AtomicInteger T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](T old) { return old & value; });
}
template <strata::gpu_worker::cuda::emulation::AtomicInteger T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](T old) { return old | value; });
}
template <strata::gpu_worker::cuda::emulation::AtomicNumber T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return strata::gpu_worker::cuda::emulation::atomic_update(p, [value](T) { return value; });
}
template <strata::gpu_worker::cuda::emulation::AtomicInteger T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return strata::gpu_worker::cuda::emulation::atomic_update(
      p, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}

inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
