#pragma once
// What docs/numerics.md and the descriptions of the formats say, one value at a time, for tests to compare
// kernels with. Slow on purpose, and shares no code with the kernels: the formulas are written value by
// value, as a format's description gives them.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/gguf/tensor_type.h"

namespace strata::quant::reference {

// 32 consecutive values of a row: value i is factor[i / 16] * scale[i / 16] * w[i] plus the minimum
// minimum_factor * minimum[i / 16].
struct Unit {
  int w[32];
  float factor[2];
  int scale[2] = {1, 1};
  bool factor_per_16 = false;  // then each half is a unit of its own
  bool has_minimum = false;
  float minimum_factor = 0;
  int minimum[2] = {1, 1};
};
Unit unit(gguf::TensorType type, const std::byte* block, int k);
std::vector<Unit> units(gguf::TensorType type, const std::byte* row, uint32_t cols);
// Value i of the unit as a float.
float dequantized(const Unit& unit, int i);

struct Q8Block {
  int q[32];
  float d;
  int sum;
};
std::vector<Q8Block> quantize(const float* x, std::size_t count);

// A quantized row times a row of quantized activations by "numerics: reproducible".
float product(const std::vector<Unit>& row, const std::vector<Q8Block>& x, float scale);
// The same for a weight row of any type as it lies in the file, and activations before they are quantized.
float product(gguf::TensorType type, const std::byte* row, const float* x, uint32_t cols, float scale);
// The dot product in 64 lanes.
float dot(const float* a, const float* b, std::size_t count);

float exp(float x);
float sigmoid(float x);
float silu(float x);
float softplus(float x);

}  // namespace strata::quant::reference
