// Parking and its end: states come back bit for bit, the budget holds, and whoever had something open is gone
// for good before its memory is.

#include <gmock/gmock.h>

#include "cache-manager/snapshots/snapshot_fixture.h"

namespace strata::cache_manager {
namespace {

class SnapshotActorTest : public SnapshotFixture {};

TEST_F(SnapshotActorTest, GivesAStateBackBitForBit) {
  start();
  attach();
  const TestTokens tokens = test_tokens(10);
  const auto reserved = reserve(tokens);
  ASSERT_TRUE(reserved);
  ASSERT_EQ(reserved->pages.size(), 3u);
  EXPECT_EQ(reserved->pages[2].tokens, 2u);
  EXPECT_EQ(reserved->pages[2].extent.bytes, kTestPageBytes) << "a page is a blob of one size";
  EXPECT_EQ(open(reserved->id).error().code(), Code::kNotFound) << "not before it is committed";
  ASSERT_TRUE(commit(reserved->ticket, copy(*reserved, tokens)).ok());
  EXPECT_EQ(fault(reserved->id, tokens), "");
  EXPECT_EQ(reserve(tokens).error().code(), Code::kAlreadyExists);
}

TEST_F(SnapshotActorTest, AGrowingConversationCostsItsNewPages) {
  start();
  attach();
  parked(test_tokens(8));
  const auto longer = reserve(test_tokens(12));
  ASSERT_TRUE(longer);
  ASSERT_EQ(longer->pages.size(), 1u);
  EXPECT_EQ(longer->pages[0].page_index, 2u);
}

TEST_F(SnapshotActorTest, WhatIsGivenUpLeavesNothing) {
  start();
  attach();
  const auto reserved = reserve(test_tokens(8));
  ASSERT_TRUE(reserved);
  EXPECT_EQ(room().ram.used_bytes, kStateUnits * kExtentUnitBytes);
  EXPECT_TRUE(
      ask<Status>(SnapshotActor::Abandon{.attachment = attachment_, .ticket = reserved->ticket, .reply = {}})
          .ok());
  EXPECT_EQ(room().ram.used_bytes, 0u);
  EXPECT_EQ(commit(reserved->ticket, {}).code(), Code::kNotFound);
}

TEST_F(SnapshotActorTest, NobodyButTheOneAttachedMayAsk) {
  start();
  EXPECT_EQ(reserve(test_tokens(8)).error().code(), Code::kAborted) << "nobody has attached";
  const auto first = attach();
  const SnapshotId id = parked(test_tokens(8));
  const uint64_t before = attachment_;
  attach();
  ASSERT_TRUE(first->end());
  EXPECT_EQ(first->end()->code(), Code::kAborted);
  EXPECT_EQ(fault(id, test_tokens(8)), "") << "the same identity: the store is kept";
  attachment_ = before;
  EXPECT_EQ(reserve(test_tokens(8)).error().code(), Code::kAborted);
  EXPECT_EQ(commit(1, {}).code(), Code::kAborted);
  EXPECT_EQ(open(id).error().code(), Code::kAborted);
  EXPECT_EQ(release(1).code(), Code::kAborted);
}

TEST_F(SnapshotActorTest, ARequestLargerThanTheBudgetIsRefused) {
  budget_of_states(1);
  start();
  attach();
  EXPECT_EQ(reserve(test_tokens(40)).error().code(), Code::kOutOfRange);
  const auto open_one = reserve(test_tokens(8));
  ASSERT_TRUE(open_one);
  EXPECT_EQ(reserve(test_tokens(8, 500)).error().code(), Code::kResourceExhausted);
}

// 20 conversations take turns within a budget for 5.
TEST_F(SnapshotActorTest, ARotationNeverExceedsTheBudget) {
  budget_of_states(5);
  start();
  attach();
  uint32_t found = 0;
  for (int turn = 0; turn < 100; ++turn) {
    const TestTokens tokens = test_tokens(kStateTokens, 1000 * (turn % 20));
    const auto id = park(tokens);
    if (id) {
      EXPECT_EQ(fault(*id, tokens), "");
    } else {
      EXPECT_EQ(id.error().code(), Code::kAlreadyExists) << id.error().message();
      ++found;
    }
    const SnapshotRoom now = room();
    ASSERT_LE(now.ram.used_bytes, options_.plan.ram_budget_bytes);
    ASSERT_LE(metric("strata_conv_bytes{tier=\"ram\"}"), metric("strata_conv_budget_bytes{tier=\"ram\"}"));
  }
  EXPECT_EQ(room().ram.snapshots, 5u);
  EXPECT_EQ(metric("strata_conv_evictions_total{cause=\"budget\",tier=\"ram\"}"), 100 - found - 5);
}

TEST_F(SnapshotActorTest, MemoryThatOthersNeedIsGivenBack) {
  options_.plan.ram_floor_bytes = 1 << 20;
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  available_bytes_ = (1 << 20) - 1;
  EXPECT_TRUE(eventually([&] { return room().ram.snapshots == 0; }));
  EXPECT_THAT(open(id).error().message(), testing::HasSubstr("floor"));
}

// --- the gpu-worker goes

TEST_F(SnapshotActorTest, AnOwnerThatDiesInTheMiddleOfACopyLeavesNothing) {
  start();
  IdleProcess first;
  const auto holder = attach_as(first.pid());
  const SnapshotId id = parked(test_tokens(8, 500));
  ASSERT_TRUE(open(id));
  ASSERT_TRUE(reserve(test_tokens(8)));
  actor::tell(actor_, SnapshotActor::Detach{.attachment = attachment_});
  // Its stream is broken, but as long as it is there it may write.
  const auto refused = attach();
  ASSERT_TRUE(refused->end());
  EXPECT_EQ(refused->end()->code(), Code::kUnavailable);
  EXPECT_EQ(room().ram.used_bytes, 2 * kStateUnits * kExtentUnitBytes);
  first.end();
  EXPECT_TRUE(eventually([&] { return room().ram.used_bytes == kStateUnits * kExtentUnitBytes; }));
  EXPECT_TRUE(attach()->grant());
  EXPECT_EQ(fault(id, test_tokens(8, 500)), "");
}

TEST_F(SnapshotActorTest, ASuccessorTakesOverFromADeadOwnerAtOnce) {
  start();
  IdleProcess first;
  attach_as(first.pid());
  ASSERT_TRUE(reserve(test_tokens(8)));
  first.end();
  EXPECT_TRUE(attach()->grant()) << "its stream has not even ended";
  EXPECT_EQ(room().ram.used_bytes, 0u);
}

TEST_F(SnapshotActorTest, AnotherIdentityBeginsAnew) {
  start();
  const auto first = attach();
  const SnapshotId id = parked(test_tokens(8));
  snapshot::StateIdentity other = snapshot::test_identity();
  other.numerics = "exact";
  const auto second = attach(other);
  ASSERT_TRUE(second->grant());
  EXPECT_NE(second->grant()->instance_id, first->grant()->instance_id);
  EXPECT_EQ(room().ram.used_bytes, 0u);
  EXPECT_EQ(open(id).error().code(), Code::kNotFound);
  EXPECT_FALSE(snapshot::RamPoolView::attach(first->grant()->segment, first->grant()->segment_bytes,
                                             first->grant()->instance_id))
      << "the memory of the first store is gone";
}

TEST_F(SnapshotActorTest, WithoutABudgetNothingIsKept) {
  options_.plan.ram_budget_bytes = 0;
  start();
  const auto holder = attach();
  ASSERT_TRUE(holder->grant());
  EXPECT_EQ(holder->grant()->segment, "");
  EXPECT_EQ(reserve(test_tokens(8)).error().code(), Code::kAborted);
  EXPECT_EQ(list().snapshots.size(), 0u);
}

TEST_F(SnapshotActorTest, ABudgetThatSharedMemoryCannotHoldIsRefused) {
  options_.plan.ram_budget_bytes = uint64_t{1} << 45;
  start();
  const auto holder = attach();
  ASSERT_TRUE(holder->end());
  EXPECT_EQ(holder->end()->code(), Code::kResourceExhausted) << holder->end()->message();
}

TEST_F(SnapshotActorTest, TheEndTakesTheMemoryWithIt) {
  start();
  const auto holder = attach();
  parked(test_tokens(8));
  const auto grant = *holder->grant();
  view_ = {};
  stop();
  ASSERT_TRUE(holder->end());
  EXPECT_EQ(holder->end()->code(), Code::kUnavailable);
  EXPECT_EQ(shm::remove_stale_segments(run_), 0u);
}

}  // namespace
}  // namespace strata::cache_manager
