// Every type against ggml's own values: dequantization bit for bit, products by their distance from
// the exact ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "services/quant/test_inputs.h"
#include "tests/support/test_data.h"

namespace strata::quant {
namespace {

namespace json = boost::json;

json::value index_of(const std::filesystem::path& folder) {
  return json::parse(strata::tests::read_text(folder / "index.json"));
}

std::string text(const json::value& object, const char* key) {
  return std::string(object.at(key).as_string());
}
uint32_t number(const json::value& object, const char* key) { return object.at(key).to_number<uint32_t>(); }
const json::value* find(const json::value& object, const char* key) {
  return object.as_object().if_contains(key);
}

template <class T>
std::vector<T> file(const json::value& object, const char* key) {
  return strata::tests::read_array<T>(strata::tests::quants_folder() / text(object, key));
}

// Calls body(type entry) for each type of the index.
template <class Body>
void for_all_types(Body body) {
  const json::value all = index_of(strata::tests::quants_folder());
  EXPECT_FALSE(all.at("types").as_array().empty());
  for (const json::value& entry : all.at("types").as_array()) {
    SCOPED_TRACE(text(entry, "name"));
    const auto type = static_cast<TensorType>(number(entry, "id"));
    ASSERT_TRUE(require_supported(type).ok());
    body(entry, type);
  }
}

TEST(QuantGolden, TheCommittedVectorsAreOfEveryType) {
  const json::value all = index_of(std::filesystem::path(STRATA_TEST_DATA_DIR) / "quants");
  std::vector<TensorType> covered;
  for (const json::value& entry : all.at("types").as_array()) {
    if (find(entry, "blocks") != nullptr && find(entry, "matmul") != nullptr)
      covered.push_back(static_cast<TensorType>(number(entry, "id")));
  }
  for (const json::value& entry : all.at("types").as_array()) {
    for (const json::value& product : entry.at("matmul").as_array())
      EXPECT_NE(find(product, "ggml_rel_err"), nullptr) << text(entry, "name");
  }
  EXPECT_THAT(covered, testing::UnorderedElementsAreArray(tests::all_types()));
  EXPECT_EQ(covered.size(), 25u);
}

TEST(QuantGolden, DequantizesEveryTypeBitForBit) {
  for_all_types([](const json::value& entry, TensorType type) {
    if (find(entry, "blocks") == nullptr) return;
    const json::value& blocks = entry.at("blocks");
    const auto data = file<std::byte>(blocks, "data");
    const auto expected = file<uint32_t>(blocks, "dequant");
    const uint32_t rows = number(blocks, "rows"), cols = number(blocks, "cols"),
                   row_bytes = number(blocks, "row_bytes");
    ASSERT_EQ(expected.size(), std::size_t{rows} * cols);
    ASSERT_EQ(data.size(), std::size_t{rows} * row_bytes);
    for (const Kernels& variant : available_kernels()) {
      SCOPED_TRACE(variant.name);
      std::vector<uint32_t> got(cols);
      for (uint32_t row = 0; row < rows; ++row) {
        variant.of(type).dequantize(data.data() + std::size_t{row} * row_bytes,
                                    reinterpret_cast<float*>(got.data()), cols);
        for (uint32_t i = 0; i < cols; ++i) {
          const uint32_t want = expected[std::size_t{row} * cols + i];
          const bool both_zero = (want << 1) == 0 && (got[i] << 1) == 0;
          ASSERT_TRUE(want == got[i] || both_zero)
              << "row " << row << " value " << i << std::hex << ": " << want << " " << got[i];
        }
      }
    }
  });
}

// |a - b| / |b| over one vector of results.
double relative_error(const float* a, const double* b, std::size_t count) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// The errors that ggml's own products have, one per vector; none where they were not recorded.
std::vector<double> ggml_errors(const json::value& product) {
  std::vector<double> errors;
  if (const json::value* recorded = find(product, "ggml_rel_err"); recorded != nullptr) {
    for (const json::value& error : recorded->as_array()) errors.push_back(error.to_number<double>());
  }
  return errors;
}

// Two different roundings of the same activations have independent errors: judge by the rms over the vectors,
// with 5% of tolerance.
TEST(QuantGolden, ProductsAreAboutAsNearToTheTruthAsGgmlsAndNotSuspiciouslyNearer) {
  for_all_types([](const json::value& entry, TensorType type) {
    if (find(entry, "matmul") == nullptr) return;
    for (const json::value& product : entry.at("matmul").as_array()) {
      const uint32_t rows = number(product, "rows"), cols = number(product, "cols"),
                     vectors = number(product, "vectors");
      SCOPED_TRACE(cols);
      const auto weights = file<std::byte>(product, "weights");
      const auto activations = file<float>(product, "activations");
      const auto exact = file<double>(product, "exact");
      ASSERT_EQ(weights.size(), std::size_t{rows} * number(product, "row_bytes"));
      ASSERT_EQ(activations.size(), std::size_t{vectors} * cols);
      ASSERT_EQ(exact.size(), std::size_t{vectors} * rows);
      const Matrix w{.type = type,
                     .rows = rows,
                     .cols = cols,
                     .data = weights.data(),
                     .row_bytes = number(product, "row_bytes")};
      const auto error = [&](Numerics numerics, float size) {
        std::vector<float> sized(activations);
        for (float& value : sized) value *= size;
        Activations x(sized.data(), vectors, cols, cols);
        if (needs_q8(type, numerics)) x.ensure_q8();
        std::vector<float> y(std::size_t{vectors} * rows);
        multiply(w, x, 0, rows, y.data(), rows, numerics);
        for (float& value : y) value /= size;
        std::vector<double> errors;
        for (uint32_t v = 0; v < vectors; ++v)
          errors.push_back(relative_error(&y[v * rows], &exact[v * rows], rows));
        return rms(errors);
      };
      const double usual = error(Numerics::kReproducible, 1.0f);
      if (const auto ggml = ggml_errors(product); !ggml.empty()) {
        EXPECT_LE(usual, 1.05 * rms(ggml));
      }
      EXPECT_LE(error(Numerics::kExact, 1.0f), 1e-6);
      if (is_quantized(type)) {
        EXPECT_GE(usual, 1e-4) << "8-bit activations cannot be that exact";
        // Activations around 1e-5: their scales are as precise as any.
        EXPECT_NEAR(error(Numerics::kReproducible, 1e-5f), usual, 0.05 * usual);
      }
    }
  });
}

}  // namespace
}  // namespace strata::quant
