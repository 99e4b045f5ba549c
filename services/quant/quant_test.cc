#include "services/quant/quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "services/quant/kernels.h"
#include "services/quant/reference.h"
#include "services/quant/test_inputs.h"

namespace strata::quant {
namespace {

using tests::Generator;

struct Case {
  Case(TensorType type, uint32_t rows, uint32_t cols, uint32_t tokens_of_x, uint64_t seed)
      : tokens(tokens_of_x) {
    Generator random(seed);
    data = tests::weights(random, type, rows, cols);
    x = tests::activations(random, std::size_t{tokens} * cols);
    w = {.type = type, .rows = rows, .cols = cols, .data = data.data(), .row_bytes = data.size() / rows};
  }
  Activations activations() const { return {x.data(), tokens, w.cols, w.cols}; }

  uint32_t tokens;
  std::vector<std::byte> data;
  std::vector<float> x;
  Matrix w;
};

TEST(Types, WeightsThatCannotBeMultipliedAreRefusedByName) {
  for (const TensorType type : tests::all_types()) EXPECT_TRUE(require_supported(type).ok());
  for (const TensorType type : {TensorType::kI32, TensorType::kF64, TensorType::kTQ1_0, TensorType::kQ8_K}) {
    const Status status = require_supported(type);
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_NE(status.message().find(gguf::tensor_type_info(type).name), std::string::npos)
        << status.message();
  }
}

TEST(Types, OnlyFloatTypesKeepFloatActivations) {
  for (const TensorType type : tests::all_types()) {
    const bool is_float = gguf::tensor_type_info(type).block_values == 1;
    EXPECT_EQ(is_quantized(type), !is_float) << gguf::tensor_type_info(type).name;
    EXPECT_EQ(needs_q8(type, Numerics::kReproducible), !is_float);
    EXPECT_FALSE(needs_q8(type, Numerics::kExact));
  }
}

TEST(Kernels, AreNamedAndTheChosenOneIsAvailable) {
  EXPECT_EQ(available_kernels().front().name, "scalar");
  bool found = false;
  for (const Kernels& variant : available_kernels()) found = found || variant.name == kernels().name;
  EXPECT_TRUE(found);
}

// What this machine lacks is skipped by name, so that a list of passed tests says what was tested.
// STRATA_EXPECT_KERNELS=amx makes it a failure.
class KernelSet : public testing::TestWithParam<const char*> {};
TEST_P(KernelSet, IsAmongThoseThatTheTestsCompare) {
  for (const Kernels& variant : available_kernels()) {
    if (variant.name == GetParam()) return;
  }
  const char* expected = std::getenv("STRATA_EXPECT_KERNELS");
  ASSERT_FALSE(expected != nullptr && std::string_view(expected) == GetParam()) << "not available here";
  GTEST_SKIP() << "this CPU has no " << GetParam();
}
INSTANTIATE_TEST_SUITE_P(Named, KernelSet, testing::Values("scalar", "avx2", "avx2_vnni", "avx512", "amx"),
                         [](const auto& name) { return std::string(name.param); });

TEST(Activations, StoredRowsAreWhatTheWorkersRead) {
  Generator random(3);
  const auto x = tests::activations(random, 3 * 96);
  Activations own(x.data(), 3, 96, 96);
  EXPECT_FALSE(own.has_q8());
  own.ensure_q8();
  const std::size_t stride = q8_row_bytes(96) + 12;  // a board may align its rows
  std::vector<std::byte> board(3 * stride);
  for (uint32_t t = 0; t < 3; ++t) quantize_q8({x.data() + 96 * t, 96}, board.data() + t * stride);
  const Activations read = Activations::from_q8(board.data(), 3, 96, stride);
  EXPECT_FALSE(read.has_f32());
  for (uint32_t t = 0; t < 3; ++t) {
    for (int i = 0; i < 96; ++i) EXPECT_EQ(own.q8(t).q[i], read.q8(t).q[i]);
    for (int b = 0; b < 3; ++b) {
      EXPECT_EQ(own.q8(t).d[b], read.q8(t).d[b]);
      int sum = 0;
      for (int i = 0; i < 32; ++i) sum += read.q8(t).q[32 * b + i];
      EXPECT_EQ(read.q8(t).sum[b], sum);
    }
  }
}

TEST(Activations, ReboundRowsAreQuantizedAgainInTheSameMemory) {
  Generator random(4);
  const auto first = tests::activations(random, 2 * 64), second = tests::activations(random, 64);
  Activations x(first.data(), 2, 64, 64);
  x.ensure_q8();
  const int8_t* memory = x.q8(0).q;
  x.rebind(second.data(), 1, 64, 64);
  EXPECT_FALSE(x.has_q8());
  x.ensure_q8();
  EXPECT_EQ(x.q8(0).q, memory);
  EXPECT_EQ(x.q8(0).d[0], reference::quantize(second.data(), 64)[0].d);
}

TEST(Activations, ANonFiniteValueShowsInEveryProductThatMeetsIt) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Case c(TensorType::kQ4_K, 9, 256, 2, 5);
    c.x[256 + 70] = bad;
    Activations x = c.activations();
    x.ensure_q8();
    std::vector<float> y(18);
    multiply(c.w, x, 0, 9, y.data(), 9, Numerics::kReproducible);
    for (int row = 0; row < 9; ++row) {
      EXPECT_TRUE(std::isfinite(y[row])) << "the other token is not touched";
      EXPECT_TRUE(std::isnan(y[9 + row]));
    }
  }
}

// Scales are binary32, so the precision does not depend on the size: multiplying by a power of two only moves
// the exponent.
TEST(Multiply, TinyActivationsKeepTheirPrecision) {
  for (const TensorType type : tests::all_types()) {
    Case usual(type, 5, 256, 1, 6), tiny(type, 5, 256, 1, 6);
    for (float& x : tiny.x) x *= 0x1p-17f;
    float y[2][5] = {};
    int i = 0;
    for (const Case* c : {&usual, &tiny}) {
      Activations x = c->activations();
      if (is_quantized(type)) x.ensure_q8();
      multiply(c->w, x, 0, 5, y[i++], 5, Numerics::kReproducible);
    }
    for (int row = 0; row < 5; ++row)
      EXPECT_EQ(y[0][row] * 0x1p-17f, y[1][row]) << gguf::tensor_type_info(type).name;
  }
}

TEST(Multiply, ExactModeIsTheFloatDotOfDequantizedWeights) {
  for (const TensorType type : tests::all_types()) {
    for (const uint32_t cols : {256u, 768u}) {
      const Case c(type, 4, cols, 11, 8);
      const Activations x = c.activations();
      std::vector<float> y(11 * 4), row(cols);
      multiply(c.w, x, 0, 4, y.data(), 4, Numerics::kExact);
      for (uint32_t r = 0; r < 4; ++r) {
        dequantize_row(type, c.w.row(r), row.data(), cols);
        for (uint32_t t = 0; t < 11; ++t) {
          EXPECT_EQ(y[t * 4 + r], reference::dot(row.data(), x.f32(t), cols))
              << gguf::tensor_type_info(type).name;
        }
      }
    }
  }
}

TEST(Multiply, ChosenTokensAndRowRangesGiveTheSameBitsAsTheWhole) {
  const Case c(TensorType::kQ6_K, 21, 512, 70, 9);
  Activations x = c.activations();
  x.ensure_q8();
  std::vector<float> whole(70 * 21);
  multiply(c.w, x, 0, 21, whole.data(), 21, Numerics::kReproducible);

  const uint32_t tokens[] = {69, 3, 3, 12};
  std::vector<float> parts(4 * 21);
  float* y[4];
  for (int i = 0; i < 4; ++i) y[i] = parts.data() + 21 * i;
  for (const auto& [begin, end] :
       {std::pair{0u, 5u}, std::pair{5u, 5u}, std::pair{5u, 20u}, std::pair{20u, 21u}}) {
    multiply(c.w, x, tokens, begin, end, y, Numerics::kReproducible);
  }
  for (int i = 0; i < 4; ++i) {
    for (int row = 0; row < 21; ++row) EXPECT_EQ(parts[21 * i + row], whole[21 * tokens[i] + row]);
  }
}

TEST(Multiply, RowRangesWriteOnlyTheirRows) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kBF16}) {
    const Case c(type, 20, 64, 2, 10);
    Activations x = c.activations();
    x.ensure_q8();
    std::vector<float> y(40, -77.0f);
    multiply(c.w, x, 3, 14, y.data(), 20, Numerics::kReproducible);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(y[i] == -77.0f, i % 20 < 3 || i % 20 >= 14) << i;
  }
}

TEST(Multiply, TheMatrixScaleMultipliesTheProduct) {
  Case c(TensorType::kNVFP4, 10, 128, 1, 11);
  Activations x = c.activations();
  x.ensure_q8();
  float plain[10], scaled[10];
  multiply(c.w, x, 0, 10, plain, 10, Numerics::kReproducible);
  c.w.scale = 0.3f;
  multiply(c.w, x, 0, 10, scaled, 10, Numerics::kReproducible);
  for (int row = 0; row < 10; ++row) EXPECT_EQ(scaled[row], plain[row] * 0.3f);
}

// Kernels may keep what they make of a frozen row, from product to product of a thread.
TEST(Multiply, FrozenActivationsGiveTheSameBits) {
  const auto product = [](const Case& c, const Activations& x, uint32_t token) {
    std::vector<float> y(c.w.rows);
    float* const out[] = {y.data()};
    const uint32_t tokens[] = {token};
    // In pieces, as threads take them; the last is a few rows, which other kernels compute.
    for (uint32_t row = 0; row < c.w.rows; row += 24)
      multiply(c.w, x, tokens, row, std::min(row + 24, c.w.rows), out, Numerics::kReproducible);
    return y;
  };
  for (const TensorType type : tests::all_types()) {
    if (!is_quantized(type)) continue;
    SCOPED_TRACE(gguf::tensor_type_info(type).name);
    const Case first(type, 52, 512, 2, 1), other(TensorType::kQ8_0, 40, 512, 2, 2), few(type, 5, 512, 2, 3);
    Activations plain = first.activations(), frozen = first.activations();
    plain.ensure_q8();
    frozen.ensure_q8();
    frozen.freeze();
    const auto compare = [&] {
      // Rows, types and matrices in turn: what was kept for one must not be taken for another.
      for (const uint32_t token : {0U, 0U, 1U, 0U}) {
        for (const Case* c : {&first, &other, &few, &first})
          EXPECT_EQ(product(*c, frozen, token), product(*c, plain, token));
      }
    };
    compare();
    // The same memory with other numbers: rebound, and so another version.
    const Case changed(type, 52, 512, 2, 4);
    plain.rebind(changed.x.data(), 2, 512, 512);
    frozen.rebind(changed.x.data(), 2, 512, 512);
    EXPECT_EQ(frozen.version(), 0U);
    plain.ensure_q8();
    frozen.ensure_q8();
    frozen.freeze();
    compare();
  }
}

TEST(Multiply, ThreadsMayShareTheActivations) {
  const Case c(TensorType::kQ4_K, 64, 512, 5, 12);
  Activations x = c.activations();
  x.ensure_q8();
  std::vector<float> alone(5 * 64), together(5 * 64);
  multiply(c.w, x, 0, 64, alone.data(), 64, Numerics::kReproducible);
  {
    std::vector<std::jthread> threads;
    for (uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&, i] { multiply(c.w, x, 16 * i, 16 * i + 16, together.data(), 64, Numerics::kReproducible); });
    }
  }
  EXPECT_EQ(alone, together);
}

}  // namespace
}  // namespace strata::quant
