// Every supported type against ggml's own values: dequantization bit for bit, products by their distance from
// the exact ones.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "tests/support/test_data.h"

namespace strata::quant {
namespace {

namespace json = boost::json;

json::value index() { return json::parse(tests::read_text(tests::quants_folder() / "index.json")); }

std::string text(const json::value& object, const char* key) {
  return std::string(object.at(key).as_string());
}
uint32_t number(const json::value& object, const char* key) { return object.at(key).to_number<uint32_t>(); }

template <class T>
std::vector<T> file(const json::value& object, const char* key) {
  return tests::read_array<T>(tests::quants_folder() / text(object, key));
}

// Calls body(type entry) for each type of the index that can be used as weights.
template <class Body>
void for_supported_types(Body body) {
  std::size_t seen = 0;
  const json::value all = index();
  for (const json::value& entry : all.at("types").as_array()) {
    const auto type = static_cast<TensorType>(number(entry, "id"));
    if (!require_supported(type).ok()) continue;
    SCOPED_TRACE(text(entry, "name"));
    ++seen;
    body(entry, type);
  }
  EXPECT_GE(seen, 11u) << "the index has hardly any type that should be supported";
}

TEST(QuantGolden, DequantizesEveryTypeBitForBit) {
  for_supported_types([](const json::value& entry, TensorType type) {
    const json::value& blocks = entry.at("blocks");
    const auto data = file<std::byte>(blocks, "data");
    const auto expected = file<uint32_t>(blocks, "dequant");
    const uint32_t rows = number(blocks, "rows"), cols = number(blocks, "cols"),
                   row_bytes = number(blocks, "row_bytes");
    ASSERT_EQ(expected.size(), std::size_t{rows} * cols);
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

// Two different roundings of the same activations have independent errors: judge by the rms over the vectors,
// with 5% of tolerance.
TEST(QuantGolden, ProductsAreAboutAsNearToTheTruthAsGgmlsAndNotSuspiciouslyNearer) {
  for_supported_types([](const json::value& entry, TensorType type) {
    for (const json::value& product : entry.at("matmul").as_array()) {
      const uint32_t rows = number(product, "rows"), cols = number(product, "cols"),
                     vectors = number(product, "vectors");
      SCOPED_TRACE(cols);
      const auto weights = file<std::byte>(product, "weights");
      const auto activations = file<float>(product, "activations");
      const auto exact = file<double>(product, "exact");
      const Matrix w{.type = type,
                     .rows = rows,
                     .cols = cols,
                     .data = weights.data(),
                     .row_bytes = number(product, "row_bytes")};
      Activations x(activations.data(), vectors, cols, cols);
      if (is_quantized(type)) x.ensure_q8();
      const auto rms = [&](Numerics numerics) {
        std::vector<float> y(std::size_t{vectors} * rows);
        multiply(w, x, 0, rows, y.data(), rows, numerics);
        double squares = 0;
        for (uint32_t v = 0; v < vectors; ++v)
          squares += std::pow(relative_error(&y[v * rows], &exact[v * rows], rows), 2);
        return std::sqrt(squares / vectors);
      };
      double ggml = 0;
      for (const json::value& error : product.at("ggml_rel_err").as_array())
        ggml += std::pow(error.to_number<double>(), 2);
      ggml = std::sqrt(ggml / vectors);
      EXPECT_LE(rms(Numerics::kReproducible), 1.05 * ggml);
      EXPECT_LE(rms(Numerics::kExact), 1e-6);
      if (is_quantized(type)) {
        EXPECT_GE(rms(Numerics::kReproducible), 1e-4) << "8-bit activations cannot be that exact";
      }
    }
  });
}

}  // namespace
}  // namespace strata::quant
