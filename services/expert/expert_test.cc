// One expert: bits by the reference, distance from the float64 result of the dequantized weights (from both
// sides), and independence of a token's bits from its company.
#include "services/expert/expert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "services/quant/reference.h"
#include "services/quant/test_inputs.h"
#include "tests/support/test_data.h"

namespace strata::expert {
namespace {

using quant::Activations;
using quant::Matrix;
using quant::Numerics;
using quant::TensorType;
using quant::tests::Generator;

struct Types {
  TensorType gate, up, down;
  std::string name() const {
    return fmt::format("{}-{}-{}", gguf::tensor_type_info(gate).name, gguf::tensor_type_info(up).name,
                       gguf::tensor_type_info(down).name);
  }
};
const std::vector<Types> kAllTypes = {
    {TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kIQ4_NL},
    {TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kQ8_0},
    {TensorType::kBF16, TensorType::kBF16, TensorType::kBF16},
    {TensorType::kQ6_K, TensorType::kF32, TensorType::kQ5_1},
    {TensorType::kQ4_K, TensorType::kQ5_0, TensorType::kF16},
};

// Random weights of usual size: rows of about 1 / sqrt(cols) would be usual, the factor of the random blocks
// is near it.
struct TestExpert {
  TestExpert(const Types& types, uint32_t hidden_size, uint32_t width_size, uint32_t token_count,
             uint64_t seed)
      : hidden(hidden_size), width(width_size), tokens(token_count) {
    Generator random(seed);
    gate = quant::tests::weights(random, types.gate, width, hidden);
    up = quant::tests::weights(random, types.up, width, hidden);
    down = quant::tests::weights(random, types.down, hidden, width);
    x = quant::tests::activations(random, std::size_t{tokens} * hidden);
    for (float& value : x) value *= 0x1p-4f;
    weights = {.gate = matrix(types.gate, width, hidden, gate),
               .up = matrix(types.up, width, hidden, up),
               .down = matrix(types.down, hidden, width, down)};
  }

  static Matrix matrix(TensorType type, uint32_t rows, uint32_t cols, const std::vector<std::byte>& data) {
    return {.type = type, .rows = rows, .cols = cols, .data = data.data(), .row_bytes = data.size() / rows};
  }

  // y[i] for the given tokens.
  std::vector<float> compute(std::span<const uint32_t> chosen, Numerics numerics,
                             ExpertScratch& scratch) const {
    Activations input(x.data(), tokens, hidden, hidden);
    if (numerics == Numerics::kReproducible) input.ensure_q8();
    std::vector<float> result(chosen.size() * hidden);
    std::vector<float*> y;
    for (std::size_t i = 0; i < chosen.size(); ++i) y.push_back(result.data() + i * hidden);
    compute_expert(weights, input, chosen, y, numerics, scratch);
    return result;
  }
  std::vector<float> compute_all(Numerics numerics) const {
    std::vector<uint32_t> all(tokens);
    for (uint32_t i = 0; i < tokens; ++i) all[i] = i;
    ExpertScratch scratch;
    return compute(all, numerics, scratch);
  }

  uint32_t hidden, width, tokens;
  std::vector<std::byte> gate, up, down;
  std::vector<float> x;
  ExpertWeights weights;
};

// ---- float64 from the dequantized weights

std::vector<double> product64(const Matrix& w, const std::vector<double>& x) {
  std::vector<double> y(w.rows);
  std::vector<float> row(w.cols);
  for (uint32_t r = 0; r < w.rows; ++r) {
    quant::dequantize_row(w.type, w.row(r), row.data(), w.cols);
    for (uint32_t i = 0; i < w.cols; ++i) y[r] += row[i] * x[i];
  }
  return y;
}

std::vector<double> expert64(const ExpertWeights& e, std::span<const float> x) {
  const std::vector<double> input(x.begin(), x.end());
  std::vector<double> g = product64(e.gate, input);
  const std::vector<double> u = product64(e.up, input);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
  return product64(e.down, g);
}

double relative_error(std::span<const float> got, std::span<const double> exact) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

double rms_error(const TestExpert& e, const std::vector<float>& y) {
  double squares = 0;
  for (std::size_t t = 0; t < e.tokens; ++t) {
    const auto exact = expert64(e.weights, std::span(e.x).subspan(t * e.hidden, e.hidden));
    squares += std::pow(relative_error(std::span(y).subspan(t * e.hidden, e.hidden), exact), 2);
  }
  return std::sqrt(squares / e.tokens);
}

TEST(Expert, ExactModeAgreesWithFloat64) {
  for (const Types& types : kAllTypes) {
    const TestExpert e(types, 512, 256, 5, 1);
    EXPECT_LE(rms_error(e, e.compute_all(Numerics::kExact)), 1e-5) << types.name();
  }
}

// Rounding to 8 bits in blocks of 32 costs 0.4 % to 1.5 % per product; much less would mean that nothing was
// quantized.
TEST(Expert, ReproducibleModeIsAsFarFromFloat64AsEightBitsAreAndNotFarther) {
  for (const Types& types : kAllTypes) {
    const TestExpert e(types, 512, 256, 5, 2);
    const double error = rms_error(e, e.compute_all(Numerics::kReproducible));
    EXPECT_LE(error, 2.5e-2) << types.name();
    if (types.gate == TensorType::kBF16) {
      EXPECT_LE(error, 1e-5) << "float weights keep float activations";
    } else {
      EXPECT_GE(error, 1e-3) << types.name();
    }
  }
}

TEST(Expert, ATokenHasTheSameBitsAloneAndInAnyCompany) {
  for (const Types& types : kAllTypes) {
    for (const Numerics numerics : {Numerics::kReproducible, Numerics::kExact}) {
      const TestExpert e(types, 256, 256, 40, 3);
      ExpertScratch scratch;
      std::vector<std::vector<float>> alone;
      for (uint32_t t = 0; t < e.tokens; ++t) alone.push_back(e.compute(std::span(&t, 1), numerics, scratch));
      for (const uint32_t count : {1u, 2u, 3u, 4u, 5u, 8u, 13u, 17u, 40u}) {
        std::vector<uint32_t> chosen;
        for (uint32_t i = 0; i < count; ++i) chosen.push_back((7 * i + count) % e.tokens);
        const auto together = e.compute(chosen, numerics, scratch);
        for (std::size_t i = 0; i < count; ++i) {
          const std::vector<float> part(together.begin() + static_cast<std::ptrdiff_t>(i * e.hidden),
                                        together.begin() + static_cast<std::ptrdiff_t>((i + 1) * e.hidden));
          ASSERT_EQ(part, alone[chosen[i]]) << types.name() << " " << count;
        }
      }
    }
  }
}

// However the rows of both phases are cut, and in whatever order the pieces come, the bits are those of one
// thread that computes everything.
TEST(Expert, RowsInAnyPiecesGiveTheSameBits) {
  Generator random(7);
  for (const Types& types : kAllTypes) {
    for (const uint32_t tokens : {1u, 2u, 7u, 33u, 70u}) {
      const TestExpert e(types, 256, 224 + 32 * (tokens % 2), tokens, 8);
      const std::vector<float> want = e.compute_all(Numerics::kReproducible);
      Activations input(e.x.data(), tokens, e.hidden, e.hidden);
      input.ensure_q8();
      std::vector<uint32_t> all(tokens);
      std::vector<float> got(want.size()), h(std::size_t{tokens} * 256);
      std::vector<float*> y;
      for (uint32_t i = 0; i < tokens; ++i) {
        all[i] = i;
        y.push_back(got.data() + std::size_t{i} * e.hidden);
      }
      const ExpertTask task{.weights = e.weights, .x = &input, .tokens = all, .y = y};
      const ExpertPhases phases(task);
      const Intermediate intermediate{.rows = h.data(), .stride = 256};
      const auto in_pieces = [&](uint32_t rows, const auto& compute) {
        std::vector<std::pair<uint32_t, uint32_t>> pieces;
        for (uint32_t begin = 0; begin < rows;) {
          const uint32_t end = std::min(rows, begin + 16 * (1 + random.below(4)));
          pieces.emplace_back(begin, end);
          begin = end;
        }
        for (; !pieces.empty(); pieces.pop_back()) {
          std::swap(pieces[random.below(static_cast<uint32_t>(pieces.size()))], pieces.back());
          compute(pieces.back().first, pieces.back().second);
        }
      };
      ExpertScratch scratch;
      in_pieces(e.width, [&](uint32_t begin, uint32_t end) {
        phases.intermediate(begin, end, intermediate, scratch);
      });
      const Activations output_input = phases.output_input(intermediate, scratch);
      in_pieces(e.hidden, [&](uint32_t begin, uint32_t end) { phases.output(begin, end, output_input); });
      ASSERT_EQ(got, want) << types.name() << ", " << tokens << " tokens";
    }
  }
}

// ---- bits

std::vector<float> reference_product(const Matrix& w, const std::vector<float>& x) {
  std::vector<float> y;
  for (uint32_t row = 0; row < w.rows; ++row)
    y.push_back(quant::reference::product(w.type, w.row(row), x.data(), w.cols, w.scale));
  return y;
}

std::vector<float> reference_expert(const ExpertWeights& e, const std::vector<float>& x) {
  std::vector<float> h = reference_product(e.gate, x);
  const std::vector<float> u = reference_product(e.up, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = quant::reference::silu(h[i]) * u[i];
  return reference_product(e.down, h);
}

// tests/data/bits/experts.txt; STRATA_WRITE_BITS=folder writes it anew, only together with a change of
// docs/numerics.md.
TEST(Expert, BitsAreTheCommittedOnes) {
  std::string made, reference;
  for (const Types& types : kAllTypes) {
    const TestExpert e(types, 256, 256, 1, 4);
    const auto y = e.compute_all(Numerics::kReproducible);
    const auto want = reference_expert(e.weights, e.x);
    const auto line = [&](const std::vector<float>& values) {
      std::string text = types.name() + ":";
      for (std::size_t i = 0; i < values.size(); i += 16)
        text += fmt::format(" {:08x}", std::bit_cast<uint32_t>(values[i]));
      return text + "\n";
    };
    EXPECT_EQ(y, want) << types.name();
    made += line(y);
    reference += line(want);
  }
  if (const char* folder = std::getenv("STRATA_WRITE_BITS"); folder != nullptr) {
    std::ofstream(std::filesystem::path(folder) / "experts.txt") << reference;
    return;
  }
  EXPECT_EQ(made, strata::tests::read_text(std::filesystem::path(STRATA_SOURCE_DIR) / "tests" / "data" /
                                           "bits" / "experts.txt"));
}

// ---- inputs and memory

TEST(Expert, TakesEightBitInputOnlyWhenGateAndUpBothDo) {
  const auto takes = [](TensorType gate, TensorType up, Numerics numerics) {
    return takes_q8_input({.gate = {.type = gate}, .up = {.type = up}, .down = {}}, numerics);
  };
  EXPECT_TRUE(takes(TensorType::kQ4_K, TensorType::kQ8_0, Numerics::kReproducible));
  EXPECT_FALSE(takes(TensorType::kQ4_K, TensorType::kF32, Numerics::kReproducible));
  EXPECT_FALSE(takes(TensorType::kBF16, TensorType::kQ4_K, Numerics::kReproducible));
  EXPECT_FALSE(takes(TensorType::kQ4_K, TensorType::kQ8_0, Numerics::kExact));
}

TEST(Expert, RowsFromTheBoardGiveTheSameBitsAsFloatRows) {
  const TestExpert e(kAllTypes[0], 256, 256, 3, 5);
  const std::size_t stride = quant::q8_row_bytes(e.hidden);
  std::vector<std::byte> board(3 * stride);
  for (std::size_t t = 0; t < 3; ++t)
    quant::quantize_q8({e.x.data() + t * e.hidden, e.hidden}, board.data() + t * stride);
  const Activations x = Activations::from_q8(board.data(), 3, e.hidden, stride);
  const uint32_t tokens[] = {2, 0, 1};
  std::vector<float> result(3 * e.hidden);
  float* y[] = {&result[2 * e.hidden], &result[0], &result[e.hidden]};
  ExpertScratch scratch;
  compute_expert(e.weights, x, tokens, y, Numerics::kReproducible, scratch);
  EXPECT_EQ(result, e.compute_all(Numerics::kReproducible));
}

TEST(CombineParts, AddsInRouterOrderWithOneAccumulator) {
  constexpr uint32_t kHidden = 37;
  Generator random(6);
  std::vector<std::vector<float>> parts;
  std::vector<const float*> pointers;
  std::vector<float> weights;
  for (int k = 0; k < 6; ++k) parts.push_back(quant::tests::activations(random, kHidden));
  for (const auto& part : parts) {
    pointers.push_back(part.data());
    weights.push_back(random.uniform());
  }
  std::vector<float> y(kHidden, 99.0f);
  combine_parts(pointers, weights, kHidden, y.data());
  for (uint32_t i = 0; i < kHidden; ++i) {
    float want = 0;
    for (std::size_t k = 0; k < 6; ++k) want = std::fma(weights[k], parts[k][i], want);
    EXPECT_EQ(y[i], want);
  }
  combine_parts({}, {}, kHidden, y.data());
  EXPECT_EQ(y, std::vector<float>(kHidden, 0.0f));
}

}  // namespace
}  // namespace strata::expert
