// The hot path allocates nothing once its memory is there. A program of its own, because it replaces operator
// new.
#include <gtest/gtest.h>

#include "services/expert/expert.h"
#include "services/quant/test_inputs.h"
#include "tests/support/count_allocations.h"

namespace strata::expert {
namespace {

using quant::Activations;
using quant::Matrix;
using quant::Numerics;
using quant::TensorType;
using tests::allocations;

TEST(Allocation, ReservedScratchAndReboundActivationsAllocateNothing) {
  constexpr uint32_t kHidden = 256, kWidth = 64, kTokens = 40;
  quant::tests::Generator random(1);
  const auto gate = quant::tests::weights(random, TensorType::kQ4_K, kWidth, kHidden);
  const auto up = quant::tests::weights(random, TensorType::kBF16, kWidth, kHidden);
  const auto down = quant::tests::weights(random, TensorType::kIQ4_NL, kHidden, kWidth);
  const auto matrix = [](TensorType type, uint32_t rows, uint32_t cols, const std::vector<std::byte>& data) {
    return Matrix{
        .type = type, .rows = rows, .cols = cols, .data = data.data(), .row_bytes = data.size() / rows};
  };
  const ExpertWeights expert{.gate = matrix(TensorType::kQ4_K, kWidth, kHidden, gate),
                             .up = matrix(TensorType::kBF16, kWidth, kHidden, up),
                             .down = matrix(TensorType::kIQ4_NL, kHidden, kWidth, down)};
  const auto x = quant::tests::activations(random, kTokens * kHidden);
  std::vector<float> y(kTokens * kHidden);
  std::vector<float*> outputs;
  std::vector<uint32_t> tokens;
  for (uint32_t t = 0; t < kTokens; ++t) {
    outputs.push_back(y.data() + std::size_t{t} * kHidden);
    tokens.push_back(t);
  }
  ExpertScratch scratch;
  scratch.reserve(kTokens, kWidth);
  Activations input(x.data(), kTokens, kHidden, kHidden);
  input.ensure_q8();  // this allocates

  // So does the first product of a thread: kernels keep the form in which they read activations.
  compute_expert(expert, input, tokens, outputs, Numerics::kReproducible, scratch);

  const uint64_t before = allocations.load();
  input.rebind(x.data(), kTokens, kHidden, kHidden);
  input.ensure_q8();
  for (const Numerics numerics : {Numerics::kReproducible, Numerics::kExact}) {
    compute_expert(expert, input, tokens, outputs, numerics, scratch);
  }
  const float* parts[] = {outputs[0], outputs[1]};
  const float weights[] = {0.25f, 0.75f};
  combine_parts(parts, weights, kHidden, outputs[2]);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_GT(before, 0u) << "allocations are not counted";
}

}  // namespace
}  // namespace strata::expert
