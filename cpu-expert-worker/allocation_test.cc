// Serving a request allocates nothing. A program of its own, because it replaces operator new.

#include <gtest/gtest.h>

#include "cpu-expert-worker/expert_job.h"
#include "cpu-expert-worker/test_layer.h"
#include "tests/support/count_allocations.h"

namespace strata::cpu_expert_worker {
namespace {

constexpr uint32_t kTokens = 40;  // more than one group
constexpr uint32_t kLanes = 3;

// All lanes on this thread.
void serve(ExpertJob& job, WorkShares& shares, std::vector<JobScratch>& scratches) {
  shares.open(job.units());
  const auto round = shares.current();
  for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
    for (uint32_t lane = 0; !shares.complete(round, stage); lane = (lane + 1) % kLanes) {
      const auto claim = shares.take(round, stage, lane);
      if (claim.empty()) continue;
      job.compute(stage, claim, scratches[lane]);
      shares.finish(round, stage, lane, claim);
    }
  }
}

void expect_no_allocations(const TestLayer::Types& types, shm::ActivationKind activations) {
  const TestLayer layer(types, 192);
  const std::string run = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  const shm::BoardGeometry geometry{
      .hidden = TestLayer::kHidden, .tokens_max = kTokens, .pairs_max = kTokens * TestLayer::kExperts};
  auto board = shm::Board::create(shm::segment_name(run, "board", shm::random_instance_id()), geometry);
  ASSERT_TRUE(board) << board.error().message();
  quant::tests::Generator random(1);
  for (uint32_t token = 0; token < kTokens; ++token) {
    const auto row = quant::tests::activations(random, TestLayer::kHidden);
    if (activations == shm::ActivationKind::kQ8) {
      quant::quantize_q8(row, board->activations(token));
    } else {
      std::ranges::copy(row, reinterpret_cast<float*>(board->activations(token)));
    }
  }

  // Kernels keep memory per thread, taken with the first products: those are another job's.
  ExpertJob warm_up(layer.layers(), geometry, kLanes), job(layer.layers(), geometry, kLanes);
  WorkShares shares(kLanes);
  std::vector<JobScratch> scratches(kLanes);
  for (JobScratch& scratch : scratches) job.prepare(scratch);
  uint64_t ticket = 0;
  const auto request = [&](ExpertJob& by, uint32_t experts) {
    for (uint32_t pair = 0; pair < experts * kTokens; ++pair) {
      board->pairs()[pair] = {.token = static_cast<uint16_t>(pair % kTokens),
                              .expert = static_cast<uint16_t>(pair / kTokens)};
    }
    board->header().request = {.ticket = ++ticket,
                               .layer = 0,
                               .tokens = kTokens,
                               .pair_count = experts * kTokens,
                               .activations = activations};
    ASSERT_TRUE(by.read(*board).ok());
    serve(by, shares, scratches);
  };
  request(warm_up, TestLayer::kExperts);
  for (JobScratch& scratch : scratches) job.prepare(scratch);
  const uint64_t before = tests::allocations.load();
  ASSERT_GT(before, 0U) << "allocations are not counted";
  for (const uint32_t experts : {1U, 2U, 4U, 7U, TestLayer::kExperts}) request(job, experts);
  EXPECT_EQ(tests::allocations.load(), before);
}

TEST(Allocation, ServingARequestAllocatesNothing) {
  using quant::TensorType;
  expect_no_allocations({TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ4_0}, shm::ActivationKind::kQ8);
  expect_no_allocations({TensorType::kBF16, TensorType::kBF16, TensorType::kBF16}, shm::ActivationKind::kF32);
  expect_no_allocations({TensorType::kQ8_0, TensorType::kBF16, TensorType::kQ8_0}, shm::ActivationKind::kF32);
}

}  // namespace
}  // namespace strata::cpu_expert_worker
