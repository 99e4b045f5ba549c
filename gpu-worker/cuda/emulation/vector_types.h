#pragma once
// CUDA's small vectors and dim3, with its alignments.

#include <cstdint>

#define STRATA_VECTOR_TYPES(name, T, align2, align4)                 \
  struct name##1 { T x; };                                           \
  struct alignas(align2) name##2 { T x, y; };                        \
  struct name##3 { T x, y, z; };                                     \
  struct alignas(align4) name##4 { T x, y, z, w; };                  \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

// clang-format off
STRATA_VECTOR_TYPES(char, signed char, 2, 4)
STRATA_VECTOR_TYPES(uchar, unsigned char, 2, 4)
STRATA_VECTOR_TYPES(short, short, 4, 8)
STRATA_VECTOR_TYPES(ushort, unsigned short, 4, 8)
STRATA_VECTOR_TYPES(int, int, 8, 16)
STRATA_VECTOR_TYPES(uint, unsigned int, 8, 16)
STRATA_VECTOR_TYPES(longlong, long long, 16, 16)
STRATA_VECTOR_TYPES(ulonglong, unsigned long long, 16, 16)
STRATA_VECTOR_TYPES(float, float, 8, 16)
STRATA_VECTOR_TYPES(double, double, 16, 16)
// clang-format on
#undef STRATA_VECTOR_TYPES

struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int width = 1, unsigned int height = 1, unsigned int depth = 1)
      : x(width), y(height), z(depth) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
