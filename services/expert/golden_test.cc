// Experts in mixed types against ggml's recorded errors. The data is large and not part of the repository:
// the folder that STRATA_GOLDEN_EXPERT_FFN names holds index.json, the matrices of each pair of types, inputs
// and the float64 results.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>

#include "services/expert/expert.h"
#include "tests/support/test_data.h"

namespace strata::expert {
namespace {

namespace json = boost::json;
using quant::Activations;
using quant::Matrix;
using quant::Numerics;
using quant::TensorType;

uint32_t number(const json::value& object, const char* key) { return object.at(key).to_number<uint32_t>(); }
std::string text(const json::value& object, const char* key) {
  return std::string(object.at(key).as_string());
}

struct LoadedMatrix {
  std::vector<std::byte> data;
  Matrix matrix;
};

// Empty when this build has no such type.
std::optional<LoadedMatrix> load(const std::filesystem::path& folder, const json::value& entry) {
  for (uint32_t id = 0; id < 64; ++id) {
    const auto* info = gguf::tensor_type_info(id);
    if (info == nullptr || info->name != text(entry, "type")) continue;
    if (!quant::require_supported(info->type).ok()) return std::nullopt;
    LoadedMatrix loaded{strata::tests::read_array<std::byte>(folder / text(entry, "file")), {}};
    loaded.matrix = {.type = info->type,
                     .rows = number(entry, "rows"),
                     .cols = number(entry, "cols"),
                     .data = loaded.data.data(),
                     .row_bytes = number(entry, "row_bytes")};
    return loaded;
  }
  return std::nullopt;
}

double error_of(const float* got, const double* exact, std::size_t count) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

TEST(ExpertGolden, IsAtMostAsFarFromTheTruthAsGgml) {
  const char* variable = std::getenv("STRATA_GOLDEN_EXPERT_FFN");
  if (variable == nullptr || *variable == '\0') GTEST_SKIP() << "STRATA_GOLDEN_EXPERT_FFN names no folder";
  const std::filesystem::path folder = variable;
  const json::value index = json::parse(strata::tests::read_text(folder / "index.json"));
  const uint32_t tokens = number(index, "tokens"), hidden = number(index, "hidden");
  int compared = 0;
  for (const json::value& entry : index.at("experts").as_array()) {
    SCOPED_TRACE(text(entry, "name"));
    const auto gate = load(folder, entry.at("gate")), up = load(folder, entry.at("up")),
               down = load(folder, entry.at("down"));
    if (!gate || !up || !down) continue;
    ++compared;
    const ExpertWeights weights{.gate = gate->matrix, .up = up->matrix, .down = down->matrix};
    const auto x = strata::tests::read_array<float>(folder / text(entry, "x"));
    const auto exact = strata::tests::read_array<double>(folder / text(entry, "y"));
    Activations input(x.data(), tokens, hidden, hidden);
    input.ensure_q8();
    const auto rms = [&](Numerics numerics) {
      std::vector<float> result(std::size_t{tokens} * hidden);
      std::vector<float*> y;
      std::vector<uint32_t> all;
      for (uint32_t t = 0; t < tokens; ++t) {
        y.push_back(result.data() + std::size_t{t} * hidden);
        all.push_back(t);
      }
      ExpertScratch scratch;
      compute_expert(weights, input, all, y, numerics, scratch);
      double squares = 0;
      for (std::size_t t = 0; t < tokens; ++t)
        squares += std::pow(error_of(y[t], &exact[t * hidden], hidden), 2);
      return std::sqrt(squares / tokens);
    };
    double ggml = 0;
    for (const json::value& e : entry.at("ggml_rel_err").as_array())
      ggml += std::pow(e.to_number<double>(), 2);
    ggml = std::sqrt(ggml / tokens);
    EXPECT_LE(rms(Numerics::kReproducible), 1.05 * ggml);
    EXPECT_GE(rms(Numerics::kReproducible), 0.1 * ggml) << "8-bit activations cannot be that exact";
    EXPECT_LE(rms(Numerics::kExact), 1e-5);
    RecordProperty(text(entry, "name"), std::to_string(rms(Numerics::kReproducible) / ggml));
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace strata::expert
