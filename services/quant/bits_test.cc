// The numbers contract: every kernel gives the bits of tests/data/bits, which the reference made, and of the
// reference on other shapes. STRATA_WRITE_BITS=folder writes the files anew; do that only together with a
// change of docs/numerics.md.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "services/quant/reference.h"
#include "services/quant/test_inputs.h"
#include "tests/support/test_data.h"

namespace strata::quant {
namespace {

namespace fs = std::filesystem;
using tests::Generator;

uint32_t bits(float x) { return std::isnan(x) ? 0x7fc00000u : std::bit_cast<uint32_t>(x); }

// Compares the lines with the committed file, or writes them.
void expect_golden(const char* name, const std::string& made) {
  if (const char* folder = std::getenv("STRATA_WRITE_BITS"); folder != nullptr) {
    std::ofstream(fs::path(folder) / name) << made;
    return;
  }
  const std::string golden =
      strata::tests::read_text(fs::path(STRATA_SOURCE_DIR) / "tests" / "data" / "bits" / name);
  ASSERT_FALSE(golden.empty()) << name;
  EXPECT_EQ(golden, made) << name;
}

// What a kernel gives for all tokens at once: y[token][row].
std::vector<float> run_product(const Kernels& variant, const Matrix& w, const std::vector<float>& x,
                               uint32_t tokens) {
  std::vector<float> y(std::size_t{tokens} * w.rows, -1.0f);
  std::vector<int8_t> q(x.size());
  std::vector<float> d(x.size() / 32 + 1);
  std::vector<int32_t> sum(d.size());
  std::vector<Q8Row> q8;
  std::vector<const float*> f32;
  std::vector<float*> out;
  const bool quantized = variant.of(w.type).product_q8 != nullptr;
  if (quantized) variant.floats->quantize_q8(x.data(), x.size(), q.data(), d.data(), sum.data());
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t at = t * w.cols;
    q8.push_back({q.data() + at, d.data() + at / 32, sum.data() + at / 32});
    f32.push_back(x.data() + at);
    out.push_back(y.data() + t * w.rows);
  }
  const ProductArgs args{.weights = w.data,
                         .row_bytes = w.row_bytes,
                         .cols = w.cols,
                         .scale = w.scale,
                         .row_end = w.rows,
                         .tokens = tokens,
                         .q8 = q8.data(),
                         .f32 = f32.data(),
                         .y = out.data(),
                         .next = {}};
  (quantized ? variant.of(w.type).product_q8 : variant.of(w.type).product_f32)(args);
  return y;
}

Matrix matrix(TensorType type, uint32_t rows, uint32_t cols, const std::vector<std::byte>& data,
              float scale = 1.0f) {
  return {.type = type,
          .rows = rows,
          .cols = cols,
          .data = data.data(),
          .row_bytes = data.size() / rows,
          .scale = scale};
}

std::string product_lines(const Matrix& w, const std::vector<float>& y, uint32_t tokens) {
  std::string line = fmt::format("{} {}:", gguf::tensor_type_info(w.type).name, w.cols);
  for (std::size_t i = 0; i < std::size_t{tokens} * w.rows; ++i) line += fmt::format(" {:08x}", bits(y[i]));
  return line + "\n";
}

TEST(Bits, ProductsOfEveryKernelAreTheCommittedOnes) {
  // More rows than any kernel has lanes, and as many tokens (the two by turns) as take tiles.
  constexpr uint32_t kRows = 19, kTokens = 2, kManyTokens = 17, kCols = 768;
  std::string reference_text;
  std::vector<std::string> kernel_text(available_kernels().size());
  for (const TensorType type : tests::all_types()) {
    Generator random(0xb175 + static_cast<uint64_t>(type));
    const auto data = tests::weights(random, type, kRows, kCols);
    const auto x = tests::activations(random, kTokens * kCols);
    const Matrix w = matrix(type, kRows, kCols, data, 0.75f);
    std::vector<float> y;
    for (uint32_t t = 0; t < kTokens; ++t) {
      for (uint32_t row = 0; row < kRows; ++row) {
        y.push_back(reference::product(type, w.row(row), x.data() + std::size_t{t} * kCols, kCols, w.scale));
      }
    }
    reference_text += product_lines(w, y, kTokens);
    std::vector<float> many;
    for (uint32_t t = 0; t < kManyTokens; ++t) {
      const auto* row = x.data() + std::size_t{t % kTokens} * kCols;
      many.insert(many.end(), row, row + kCols);
    }
    for (std::size_t v = 0; v < kernel_text.size(); ++v) {
      const Kernels& variant = available_kernels()[v];
      const auto few = run_product(variant, w, x, kTokens),
                 tiles = run_product(variant, w, many, kManyTokens);
      kernel_text[v] += product_lines(w, few, kTokens);
      for (std::size_t i = 0; i < tiles.size(); ++i)
        ASSERT_EQ(bits(tiles[i]), bits(few[i % few.size()])) << variant.name << " " << i;
    }
  }
  expect_golden("products.txt", reference_text);
  for (const std::string& text : kernel_text) EXPECT_EQ(text, reference_text);
}

TEST(Bits, ProductsDependNeitherOnTheNumberOfTokensNorOnTheRowsBesideThem) {
  for (const TensorType type : tests::all_types()) {
    SCOPED_TRACE(gguf::tensor_type_info(type).name);
    const uint32_t cols = gguf::tensor_type_info(type).block_values == 256 ? 512 : 192;
    for (const uint32_t rows : {1u, 7u, 8u, 9u, 19u}) {
      for (const uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 7u, 17u}) {
        Generator random(rows * 100 + tokens);
        const auto data = tests::weights(random, type, rows, cols);
        const auto x = tests::activations(random, std::size_t{tokens} * cols);
        const Matrix w = matrix(type, rows, cols, data);
        for (const Kernels& variant : available_kernels()) {
          const auto y = run_product(variant, w, x, tokens);
          for (uint32_t t = 0; t < tokens; ++t) {
            for (uint32_t row = 0; row < rows; ++row) {
              const float want =
                  reference::product(type, w.row(row), x.data() + std::size_t{t} * cols, cols, 1.0f);
              ASSERT_EQ(bits(y[t * rows + row]), bits(want)) << variant.name << " rows " << rows << " tokens "
                                                             << tokens << " row " << row << " token " << t;
            }
          }
        }
      }
    }
  }
}

// The largest integers that a type can reach stay exact: all weights and activations at their extremes.
TEST(Bits, ExtremeWeightsAndActivationsStayExact) {
  for (const TensorType type : tests::all_types()) {
    if (!is_quantized(type)) continue;
    SCOPED_TRACE(gguf::tensor_type_info(type).name);
    for (const uint8_t fill : {0x00, 0x0f, 0x77, 0x7f, 0x80, 0x88, 0xf0, 0xff}) {
      // The last of these numbers is enough for lanes and tiles.
      for (const uint32_t count : {1u, 19u}) {
        Generator random(fill);
        auto data = tests::weights(random, type, count, 256);
        const auto scales = data;  // keep the float factors, fill the rest
        std::fill(data.begin(), data.end(), std::byte{fill});
        const auto& info = gguf::tensor_type_info(type);
        for (std::size_t at = 0; at + info.block_bytes <= data.size(); at += info.block_bytes) {
          for (const std::size_t offset : tests::factor_bytes(type)) data[at + offset] = scales[at + offset];
        }
        const Matrix w = matrix(type, count, 256, data);
        for (const float sign : {1.0f, -1.0f}) {
          const std::vector<float> x(std::size_t{256} * count, sign);
          for (const Kernels& variant : available_kernels()) {
            const auto y = run_product(variant, w, x, count);
            for (std::size_t i = 0; i < y.size(); ++i) {
              const auto row = static_cast<uint32_t>(i % count);
              ASSERT_EQ(bits(y[i]), bits(reference::product(type, w.row(row), x.data(), 256, 1.0f)))
                  << variant.name << " fill " << int{fill} << " rows " << count << " row " << row;
            }
          }
        }
      }
    }
  }
}

std::string activation_lines(const std::vector<reference::Q8Block>& blocks) {
  std::string text;
  for (const auto& block : blocks) {
    text += fmt::format("{:08x} {} ", bits(block.d), block.sum);
    for (const int q : block.q) text += fmt::format("{:02x}", static_cast<uint8_t>(q));
    text += '\n';
  }
  return text;
}

// Usual blocks, then zeros, tiny, subnormal, huge, ties, infinite and NaN ones.
std::vector<float> activation_cases() {
  Generator random(0xac71);
  std::vector<float> x = tests::activations(random, 512);
  const auto add = [&](float scale) {
    for (int i = 0; i < 32; ++i) x.push_back(random.uniform() * scale);
  };
  for (const float scale : {0.0f, 1e-5f, 1e-29f, 0x1p-99f, 0x1p-101f, 1e-40f, 1e38f}) add(scale);
  for (int i = 0; i < 32; ++i) x.push_back(static_cast<float>(i) + 0.5f);  // ties, once the largest is 127
  x.back() = 127;
  add(1);
  x.back() = -std::numeric_limits<float>::infinity();
  add(1);
  x[x.size() - 17] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

TEST(Bits, ActivationsOfEveryKernelAreTheCommittedOnes) {
  const auto x = activation_cases();
  const std::string made = activation_lines(reference::quantize(x.data(), x.size()));
  expect_golden("activations.txt", made);
  for (const Kernels& variant : available_kernels()) {
    std::vector<int8_t> q(x.size());
    std::vector<float> d(x.size() / 32);
    std::vector<int32_t> sum(d.size());
    variant.floats->quantize_q8(x.data(), x.size(), q.data(), d.data(), sum.data());
    std::vector<reference::Q8Block> blocks(d.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks[b].d = d[b];
      blocks[b].sum = sum[b];
      for (std::size_t i = 0; i < 32; ++i) blocks[b].q[i] = q[32 * b + i];
    }
    EXPECT_EQ(activation_lines(blocks), made) << variant.name;
  }
}

// Points of all sizes and signs, the ends of the ranges and the non-finite values.
std::vector<float> function_points() {
  std::vector<float> x = {0.0f,  -0.0f,    20.0f,      20.000002f, 88.72283f, 88.72284f,
                          88.8f, -87.4f,   -103.9f,    -104.0001f, 1e-40f,    -1e30f,
                          1e30f, 0.34657f, -0.346574f, 1e-10f,     -20.0f,    std::nanf("")};
  Generator random(0xf0);
  for (int i = 0; i < 60; ++i) {
    const float size = static_cast<float>(1u << random.below(8));
    x.push_back(random.uniform() * size);
  }
  for (int i = 0; i < 20; ++i) x.push_back(random.uniform() * 0x1p-12f);
  return x;
}

template <class Exp, class Sigmoid, class Silu, class Softplus>
std::string function_lines(Exp exp, Sigmoid sigmoid, Silu silu, Softplus softplus) {
  std::string text;
  for (const float x : function_points()) {
    text += fmt::format("{:08x}: {:08x} {:08x} {:08x} {:08x}\n", bits(x), bits(exp(x)), bits(sigmoid(x)),
                        bits(silu(x)), bits(softplus(x)));
  }
  return text;
}

TEST(Bits, FunctionsOfEveryKernelAreTheCommittedOnes) {
  const std::string made =
      function_lines(reference::exp, reference::sigmoid, reference::silu, reference::softplus);
  expect_golden("functions.txt", made);
  for (const Kernels& variant : available_kernels()) {
    const FloatKernels& f = *variant.floats;
    EXPECT_EQ(function_lines(f.exp, f.sigmoid, f.silu, f.softplus), made) << variant.name;
    std::vector<float> gate = function_points(), up(gate.size(), 0.7f), out(gate.size());
    f.silu_multiply(gate.data(), up.data(), out.data(), gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i)
      EXPECT_EQ(bits(out[i]), bits(f.silu(gate[i]) * 0.7f)) << variant.name << gate[i];
  }
}

TEST(Bits, FloatDotAndSumsFollowTheLanesForEveryLength) {
  Generator random(7);
  for (std::size_t count = 0; count < 200; ++count) {
    const auto a = tests::activations(random, count), b = tests::activations(random, count);
    const std::vector<float> ones(count, 1.0f);
    for (const Kernels& variant : available_kernels()) {
      EXPECT_EQ(bits(variant.floats->dot(a.data(), b.data(), count)),
                bits(reference::dot(a.data(), b.data(), count)));
      EXPECT_EQ(bits(variant.floats->sum(a.data(), count)),
                bits(reference::dot(a.data(), ones.data(), count)));
      EXPECT_EQ(bits(variant.floats->sum_squares(a.data(), count)),
                bits(reference::dot(a.data(), a.data(), count)));
    }
  }
}

}  // namespace
}  // namespace strata::quant
