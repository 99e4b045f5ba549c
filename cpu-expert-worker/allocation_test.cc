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

TEST(Allocation, ServingARequestAllocatesNothing) {
  const TestLayer layer({quant::TensorType::kQ4_K, quant::TensorType::kQ4_K, quant::TensorType::kQ4_0}, 192);
  const std::string run = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  const shm::BoardGeometry geometry{
      .hidden = TestLayer::kHidden, .tokens_max = kTokens, .pairs_max = kTokens * TestLayer::kExperts};
  auto board = shm::Board::create(shm::segment_name(run, "board", shm::random_instance_id()), geometry);
  ASSERT_TRUE(board) << board.error().message();
  quant::tests::Generator random(1);
  for (uint32_t token = 0; token < kTokens; ++token)
    quant::quantize_q8(quant::tests::activations(random, TestLayer::kHidden), board->activations(token));

  ExpertJob job(layer.layers(), geometry, kLanes);
  WorkShares shares(kLanes);
  std::vector<JobScratch> scratches(kLanes);
  for (JobScratch& scratch : scratches) job.prepare(scratch);
  uint64_t ticket = 0;
  // Kernels may keep memory per thread, taken with the first products.
  uint64_t before = 0;
  for (const uint32_t experts : {TestLayer::kExperts, 1U, 2U, 4U, 7U, TestLayer::kExperts}) {
    if (ticket == 1) before = tests::allocations.load();
    for (uint32_t pair = 0; pair < experts * kTokens; ++pair) {
      board->pairs()[pair] = {.token = static_cast<uint16_t>(pair % kTokens),
                              .expert = static_cast<uint16_t>(pair / kTokens)};
    }
    board->header().request = {
        .ticket = ++ticket, .layer = 0, .tokens = kTokens, .pair_count = experts * kTokens};
    ASSERT_TRUE(job.read(*board).ok());
    serve(job, shares, scratches);
  }
  EXPECT_EQ(tests::allocations.load(), before);
  EXPECT_GT(before, 0U) << "allocations are not counted";
}

}  // namespace
}  // namespace strata::cpu_expert_worker
