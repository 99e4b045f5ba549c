// The router on the device against model::route.
#include "gpu-worker/cuda/route.h"

#include <limits>

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/moe_block.h"

namespace strata::gpu_worker::cuda::tests {
namespace {

struct Routed {
  std::vector<uint16_t> ids;
  std::vector<float> weights;
};

Routed route_on_device(const std::vector<float>& logits, uint32_t experts, uint32_t top_k,
                       const std::vector<uint16_t>* forced = nullptr) {
  const auto rows = static_cast<uint32_t>(logits.size() / experts);
  const auto device_logits = on_device(logits);
  const auto ids = device_zeros<uint16_t>(std::size_t{rows} * top_k);
  const auto weights = device_zeros<float>(std::size_t{rows} * top_k);
  DeviceBuffer<uint16_t> device_forced;
  if (forced != nullptr) device_forced = on_device(*forced);
  route({.logits = {device_logits.data(), experts},
         .rows = rows,
         .experts = experts,
         .top_k = top_k,
         .ids = ids.data(),
         .weights = weights.data(),
         .forced_ids = device_forced.data()},
        nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return {values_of(ids), values_of(weights)};
}

void expect_same_route(const std::vector<float>& logits, uint32_t experts, uint32_t top_k) {
  const Routed actual = route_on_device(logits, experts, top_k);
  Routed expected{std::vector<uint16_t>(actual.ids.size()), std::vector<float>(actual.ids.size())};
  for (std::size_t row = 0; row < logits.size() / experts; ++row) {
    std::vector<float> of_row(logits.begin() + row * experts, logits.begin() + (row + 1) * experts);
    model::route(of_row, std::span(expected.ids).subspan(row * top_k, top_k),
                 std::span(expected.weights).subspan(row * top_k, top_k));
  }
  ASSERT_EQ(actual.ids, expected.ids);
  expect_same_bits(actual.weights, expected.weights, "weight");
}

TEST(RouteTest, AnyNumbersOfExperts) {
  Generator random(3);
  for (const auto& [experts, top_k] :
       {std::pair{512u, 10u}, {1024u, 32u}, {33u, 32u}, {7u, 7u}, {1u, 1u}, {128u, 8u}, {40u, 1u}}) {
    SCOPED_TRACE(testing::Message() << top_k << " of " << experts);
    expect_same_route(random_floats(random, std::size_t{experts} * 9, 8.0f), experts, top_k);
  }
}

TEST(RouteTest, EqualLogitsGoByTheLowerId) {
  expect_same_route(std::vector<float>(512, 1.5f), 512, 10);
  std::vector<float> few(512 * 3);
  Generator random(4);
  for (float& logit : few) logit = static_cast<float>(random.below(3));
  expect_same_route(few, 512, 10);
}

TEST(RouteTest, FaultsGiveDistinctValidIds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float fault : {kNan, kInfinity}) {
    for (const uint32_t at : {0u, 17u, 63u}) {
      std::vector<float> logits(64, 0.25f);
      logits[at] = fault;
      expect_same_route(logits, 64, 6);
    }
  }
  expect_same_route(std::vector<float>(64, -kInfinity), 64, 6);
  std::vector<float> one(64, -kInfinity);
  one[40] = 1;
  expect_same_route(one, 64, 6);
}

TEST(RouteTest, ForcedIdsGetTheirOwnProbabilities) {
  Generator random(5);
  const std::vector<float> logits = random_floats(random, 64, 4.0f);
  const std::vector<uint16_t> forced = {60, 3, 17};
  const Routed actual = route_on_device(logits, 64, 3, &forced);
  EXPECT_EQ(actual.ids, forced);
  const Routed all = route_on_device(logits, 64, 32);
  // Of the softmax over all, only the ratio is known from outside: exp of the difference, within its
  // rounding.
  const float ratio = actual.weights[0] / actual.weights[1];
  EXPECT_NEAR(ratio, std::exp(logits[60] - logits[3]), 1e-5f * ratio);
  EXPECT_NEAR(actual.weights[0] + actual.weights[1] + actual.weights[2], 1.0f, 1e-6f);
  EXPECT_NE(all.ids, forced);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::tests
