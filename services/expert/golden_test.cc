// Experts in mixed types against the float64 results and ggml's recorded errors.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "services/expert/expert.h"
#include "tests/support/test_data.h"

namespace strata::expert {
namespace {

namespace json = boost::json;
using quant::Activations;
using quant::Matrix;
using quant::Numerics;

uint32_t number(const json::value& object, const char* key) { return object.at(key).to_number<uint32_t>(); }
std::string text(const json::value& object, const char* key) {
  return std::string(object.at(key).as_string());
}
const json::value* find(const json::value& object, const char* key) {
  return object.as_object().if_contains(key);
}
template <class T>
std::vector<T> file(const std::string& name) {
  return strata::tests::read_array<T>(strata::tests::experts_folder() / name);
}

struct LoadedMatrix {
  std::vector<std::byte> data;
  Matrix matrix;
};

LoadedMatrix load(const json::value& entry) {
  for (uint32_t id = 0; id < 64; ++id) {
    const auto* info = gguf::tensor_type_info(id);
    if (info == nullptr || info->name != text(entry, "type")) continue;
    EXPECT_TRUE(quant::require_supported(info->type).ok());
    LoadedMatrix loaded{file<std::byte>(text(entry, "file")), {}};
    loaded.matrix = {.type = info->type,
                     .rows = number(entry, "rows"),
                     .cols = number(entry, "cols"),
                     .data = loaded.data.data(),
                     .row_bytes = number(entry, "row_bytes")};
    EXPECT_EQ(loaded.data.size(), loaded.matrix.rows * loaded.matrix.row_bytes);
    return loaded;
  }
  ADD_FAILURE() << "no type " << text(entry, "type");
  return {};
}

struct Golden {
  LoadedMatrix gate, up, down;
  std::vector<float> x;
  std::vector<double> y;
  uint32_t tokens = 0, hidden = 0;

  explicit Golden(const json::value& entry)
      : gate(load(entry.at("gate"))),
        up(load(entry.at("up"))),
        down(load(entry.at("down"))),
        x(file<float>(text(entry, "x"))),
        y(file<double>(text(entry, "y"))),
        hidden(down.matrix.rows) {
    tokens = static_cast<uint32_t>(y.size() / std::max(hidden, 1u));
  }

  // Tokens first..first+count-1 as one batch, their activations multiplied by `size`.
  std::vector<float> compute(uint32_t first, uint32_t count, Numerics numerics, float size = 1.0f) const {
    std::vector<float> sized(x);
    for (float& value : sized) value *= size;
    Activations input(sized.data(), tokens, hidden, hidden);
    input.ensure_q8();
    std::vector<float> result(std::size_t{count} * hidden);
    std::vector<float*> out;
    std::vector<uint32_t> chosen;
    for (uint32_t i = 0; i < count; ++i) {
      out.push_back(result.data() + std::size_t{i} * hidden);
      chosen.push_back(first + i);
    }
    ExpertScratch scratch;
    compute_expert({.gate = gate.matrix, .up = up.matrix, .down = down.matrix}, input, chosen, out, numerics,
                   scratch);
    return result;
  }
};

double error_of(const float* got, const double* exact, std::size_t count) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}
// Of the tokens of one result, over `exact` [token][value].
double rms_error(const std::vector<float>& got, const std::vector<double>& exact, uint32_t hidden) {
  std::vector<double> errors;
  for (std::size_t at = 0; at < got.size(); at += hidden)
    errors.push_back(error_of(&got[at], &exact[at], hidden));
  return rms(errors);
}

template <class Body>
void for_all_experts(Body body) {
  const json::value index =
      json::parse(strata::tests::read_text(strata::tests::experts_folder() / "index.json"));
  EXPECT_FALSE(index.at("experts").as_array().empty());
  for (const json::value& entry : index.at("experts").as_array()) {
    SCOPED_TRACE(text(entry, "name"));
    const Golden golden(entry);
    ASSERT_FALSE(testing::Test::HasFailure());
    ASSERT_GT(golden.tokens, 0u);
    ASSERT_EQ(golden.x.size(), std::size_t{golden.tokens} * golden.hidden);
    ASSERT_EQ(golden.gate.matrix.cols, golden.hidden);
    body(entry, golden);
  }
}

TEST(ExpertGolden, TheCommittedExpertsHaveWhatTheTestsBelowJudgeBy) {
  const json::value index = json::parse(
      strata::tests::read_text(std::filesystem::path(STRATA_TEST_DATA_DIR) / "experts" / "index.json"));
  for (const json::value& entry : index.at("experts").as_array()) {
    EXPECT_NE(find(entry, "ggml_rel_err"), nullptr) << text(entry, "name");
    EXPECT_NE(find(entry, "sets"), nullptr) << text(entry, "name");
  }
}

TEST(ExpertGolden, IsAtMostAsFarFromTheTruthAsGgml) {
  for_all_experts([](const json::value& entry, const Golden& golden) {
    const auto error = [&](Numerics numerics) {
      return rms_error(golden.compute(0, golden.tokens, numerics), golden.y, golden.hidden);
    };
    const double usual = error(Numerics::kReproducible);
    EXPECT_LE(error(Numerics::kExact), 1e-5);
    if (quant::is_quantized(golden.gate.matrix.type)) {
      EXPECT_GE(usual, 1e-3) << "8-bit activations cannot be that exact";
    }
    const json::value* recorded = find(entry, "ggml_rel_err");
    if (recorded == nullptr) return;
    std::vector<double> ggml;
    for (const json::value& e : recorded->as_array()) ggml.push_back(e.to_number<double>());
    EXPECT_LE(usual, 1.05 * rms(ggml));
    testing::Test::RecordProperty(text(entry, "name"), std::to_string(usual / rms(ggml)));
  });
}

TEST(ExpertGolden, ATokenHasTheSameBitsInEverySet) {
  for_all_experts([](const json::value& entry, const Golden& golden) {
    const json::value* sets = find(entry, "sets");
    if (sets == nullptr) return;
    const auto all = golden.compute(0, golden.tokens, Numerics::kReproducible);
    for (const json::value& set : sets->as_array()) {
      const uint32_t first = number(set, "first"), count = number(set, "count");
      const auto part = golden.compute(first, count, Numerics::kReproducible);
      const auto* same = all.data() + std::size_t{first} * golden.hidden;
      EXPECT_TRUE(std::equal(part.begin(), part.end(), same)) << first << " " << count;
    }
  });
}

// For tiny activations silu(a) is a / 2, so the expert's result is the square of their size times that of a
// bilinear one: the exact mode gives the truth, and scales of 16 bits would show.
TEST(ExpertGolden, TinyActivationsKeepTheirPrecision) {
  for_all_experts([](const json::value&, const Golden& golden) {
    const auto error = [&](float size) {
      const auto exact = golden.compute(0, golden.tokens, Numerics::kExact, size);
      return rms_error(golden.compute(0, golden.tokens, Numerics::kReproducible, size),
                       std::vector<double>(exact.begin(), exact.end()), golden.hidden);
    };
    const double usual = error(1.0f);
    EXPECT_LE(error(1e-5f), 1.25 * usual);
  });
}

}  // namespace
}  // namespace strata::expert
