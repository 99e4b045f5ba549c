#include "services/snapshot/snapshot_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {
namespace {

// The fixed part takes 2 units of memory, a page or a tail page 1.
class SnapshotStoreTest : public StoreFixture {
 protected:
  void TearDown() override {
    if (store_) store_->check_books();
  }
  Code code(const StoreRequest& wanted) { return code(store_->reserve(wanted)); }
  template <class T>
  static Code code(const Result<T>& result) {
    return result ? Code::kOk : result.error().code();
  }
  uint64_t used_units() const { return store_->pool().used_bytes() / kExtentUnitBytes; }
  static TestTokens joined(TestTokens tokens, const TestTokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }
};

TEST_F(SnapshotStoreTest, GivesBackWhatWasStored) {
  make(100);
  for (uint32_t count : {1U, 3U, 4U, 5U, 8U, 21U}) {
    const TestTokens tokens = test_tokens(count, static_cast<int32_t>(count) * 1000);
    const SnapshotId id = stored(tokens);
    EXPECT_EQ(fault(id, tokens), "") << count << " tokens";
    EXPECT_EQ(store_->tokens(id).value(), tokens);
    EXPECT_EQ(store_->info(id)->position, count);
  }
  EXPECT_EQ(store_->list().size(), 6u);
  EXPECT_EQ(store_->counters().stored, 6u);
}

TEST_F(SnapshotStoreTest, AGrowingConversationCostsItsNewPagesAndTheFixedPart) {
  make(100);
  stored(test_tokens(8));
  EXPECT_EQ(used_units(), 4u);
  const auto reservation = store_->reserve(request(test_tokens(14)));
  ASSERT_TRUE(reservation);
  EXPECT_EQ(reservation->shared_pages, 2u);
  ASSERT_EQ(reservation->pages.size(), 2u);
  EXPECT_EQ(reservation->pages[0].page_index, 2u);
  EXPECT_EQ(reservation->pages[0].tokens, 4u);
  EXPECT_EQ(reservation->pages[1].tokens, 2u) << "the tail";
  EXPECT_EQ(reservation->pages[1].extent.bytes, 2 * kTestTailBytesPerToken);
  ASSERT_TRUE(store_->commit(reservation->ticket, fill(*reservation, test_tokens(14))));
  EXPECT_EQ(used_units(), 8u);
  EXPECT_EQ(fault(reservation->id, test_tokens(14)), "");
  EXPECT_EQ(store_->counters().pages_shared, 2u);
  EXPECT_EQ(store_->info(reservation->id)->own_bytes, 4 * kExtentUnitBytes);
  EXPECT_EQ(store_->info(reservation->id)->shared_bytes, 2 * kExtentUnitBytes);
}

TEST_F(SnapshotStoreTest, NothingIsOfferedBeforeItIsCommitted) {
  make(100);
  const auto reservation = store_->reserve(request(test_tokens(9)));
  ASSERT_TRUE(reservation);
  EXPECT_FALSE(store_->contains(reservation->id));
  EXPECT_EQ(code(store_->open(reservation->id, 1)), Code::kNotFound);
  EXPECT_EQ(store_->page_count(), 0u) << "nor may others share its pages";
  EXPECT_TRUE(store_->abandon(reservation->ticket).ok());
  EXPECT_EQ(used_units(), 0u);
  EXPECT_EQ(store_->abandon(reservation->ticket).code(), Code::kNotFound);
  EXPECT_EQ(code(store_->commit(reservation->ticket, {})), Code::kNotFound);
}

TEST_F(SnapshotStoreTest, AStateIsStoredOnce) {
  make(100);
  const SnapshotId id = stored(test_tokens(9));
  const int64_t used_ms = store_->info(id)->last_used_ms;
  now_ms_ += 50;
  EXPECT_EQ(code(request(test_tokens(9))), Code::kAlreadyExists);
  EXPECT_GT(store_->info(id)->last_used_ms, used_ms) << "wanting it counts as a use";

  const auto first = store_->reserve(request(test_tokens(12)));
  const auto second = store_->reserve(request(test_tokens(12)));
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(store_->commit(second->ticket, fill(*second, test_tokens(12))));
  EXPECT_TRUE(store_->commit(first->ticket, fill(*first, test_tokens(12)))) << "both may say it is stored";
  EXPECT_EQ(used_units(), 2 + 2 + 1 + 2 + 1) << "once";
  EXPECT_EQ(fault(first->id, test_tokens(12)), "");
}

TEST_F(SnapshotStoreTest, TwoThatCopyOnePageAtATimeKeepOne) {
  make(100);
  const TestTokens a = joined(test_tokens(4), test_tokens(4, 500));
  const TestTokens b = joined(test_tokens(4), test_tokens(4, 600));
  const auto first = store_->reserve(request(a));
  const auto second = store_->reserve(request(b));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->shared_pages, 0u);
  EXPECT_EQ(used_units(), 8u);
  ASSERT_TRUE(store_->commit(second->ticket, fill(*second, b)));
  ASSERT_TRUE(store_->commit(first->ticket, fill(*first, a)));
  EXPECT_EQ(used_units(), 7u);
  EXPECT_EQ(fault(first->id, a), "");
  EXPECT_EQ(fault(second->id, b), "");
}

TEST_F(SnapshotStoreTest, RefusesWhatIsNotItsOwnWhole) {
  make(100);
  const TestTokens tokens = test_tokens(9);
  StoreRequest other = request(tokens);
  other.identity.low ^= 1;
  EXPECT_EQ(code(other), Code::kFailedPrecondition);
  EXPECT_EQ(store_->counters().refused_identity, 1u);
  const auto refused = [&](auto change) {
    StoreRequest wanted = request(tokens);
    change(wanted);
    return code(wanted) == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& r) { r.name_space = {}; }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens = {}; }));
  EXPECT_TRUE(refused([](auto& r) { r.cost_seconds = -1; }));
  EXPECT_TRUE(refused([](auto& r) { r.cost_seconds = std::nan(""); }));
  EXPECT_TRUE(refused([](auto& r) { r.tail_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& r) { r.tail_bytes = kTestPageBytes + 1; }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens = r.tokens.first(8); })) << "no tail, but bytes of one";
  EXPECT_EQ(used_units(), 0u);

  const auto reservation = store_->reserve(request(tokens));
  ASSERT_TRUE(reservation);
  CopyChecksums checksums = fill(*reservation, tokens);
  checksums.pages.pop_back();
  EXPECT_EQ(code(store_->commit(reservation->ticket, checksums)), Code::kInvalidArgument);
  checksums = fill(*reservation, tokens);
  checksums.parts.clear();
  EXPECT_EQ(code(store_->commit(reservation->ticket, checksums)), Code::kInvalidArgument);
  EXPECT_TRUE(store_->commit(reservation->ticket, fill(*reservation, tokens))) << "the reservation stayed";
}

TEST_F(SnapshotStoreTest, RefusesAnIdentityThatMakesNoSense) {
  StoreOptions wrong = options();
  wrong.identity.page_tokens = 0;
  auto memory = pool(4096);
  ASSERT_TRUE(memory);
  EXPECT_EQ(code(SnapshotStore::create(wrong, std::move(*memory))), Code::kInvalidArgument);
}

TEST_F(SnapshotStoreTest, ADamagedByteIsNoticed) {
  make(100);
  const SnapshotId id = stored(test_tokens(9));
  auto open = store_->open(id, 1);
  ASSERT_TRUE(open);
  EXPECT_TRUE(store_->verify(*open).ok());
  for (const auto& [extent, name] :
       {std::pair(open->fixed, "delta_net"), std::pair(open->pages[1].extent, "page 1"),
        std::pair(open->pages[2].extent, "page 2")}) {
    store_->pool().bytes(extent)[extent.bytes / 2] ^= std::byte{1};
    const Status status = store_->verify(*open);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    store_->pool().bytes(extent)[extent.bytes / 2] ^= std::byte{1};
  }
  EXPECT_TRUE(store_->release(open->ticket).ok());
  EXPECT_EQ(store_->verify(*open).code(), Code::kNotFound);
  EXPECT_EQ(store_->release(open->ticket).code(), Code::kNotFound);
}

// --- room

TEST_F(SnapshotStoreTest, OneThatIsLargerThanTheBudgetPushesNothingOut) {
  make(10);
  const SnapshotId small = stored(test_tokens(8));
  EXPECT_EQ(code(request(test_tokens(40, 500))), Code::kOutOfRange);
  EXPECT_EQ(code(request(test_tokens(36))), Code::kOutOfRange) << "also with the pages that are here";
  EXPECT_EQ(store_->counters().refused_large, 2u);
  EXPECT_TRUE(store_->contains(small));
}

TEST_F(SnapshotStoreTest, MakesRoomByRemovingWhatIsWorthLeastAndSaysSo) {
  make(12);  // three of 4 units
  const SnapshotId a = stored(test_tokens(8, 1000));
  const SnapshotId b = stored(test_tokens(8, 2000));
  const SnapshotId c = stored(test_tokens(8, 3000));
  now_ms_ += 1000;
  EXPECT_TRUE(store_->touch(a).ok());
  const SnapshotId d = stored(test_tokens(8, 4000));
  EXPECT_TRUE(store_->contains(a) && store_->contains(c) && store_->contains(d));
  const auto opened = store_->open(b, 1);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kNotFound);
  EXPECT_NE(opened.error().message().find("evicted (budget)"), std::string::npos) << opened.error().message();
  const auto why = store_->why_gone(b);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->cause, EvictionCause::kBudget);
  EXPECT_EQ(why->position, 8u);
  EXPECT_EQ(why->freed_bytes, 4 * kExtentUnitBytes);
  EXPECT_EQ(store_->counters().evicted[0], 1u);
  EXPECT_FALSE(store_->why_gone(a));
  EXPECT_FALSE(store_->why_gone(SnapshotId{.high = 1, .low = 2})) << "never seen";
  stored(test_tokens(8, 2000));
  EXPECT_FALSE(store_->why_gone(b)) << "back again";
}

TEST_F(SnapshotStoreTest, RotatesManyConversationsWithinTheBudget) {
  make(20);  // five of 4 units
  for (int round = 0; round < 3; ++round) {
    for (int32_t conversation = 0; conversation < 20; ++conversation) {
      const TestTokens tokens = test_tokens(8, 1000 * (conversation + 1));
      const SnapshotId id = stored(tokens);
      EXPECT_EQ(fault(id, tokens), "");
      EXPECT_LE(store_->pool().resident_bytes(), 21 * kExtentUnitBytes);
    }
  }
  EXPECT_EQ(store_->list().size(), 5u);
  EXPECT_EQ(store_->counters().evicted[0], 55u);
}

TEST_F(SnapshotStoreTest, DivergedHistoriesGoFirst) {
  make(15);
  const TestTokens begin = test_tokens(8);
  stored(begin);                                                          // 4
  const SnapshotId old_way = stored(joined(begin, test_tokens(8, 500)));  // + 4, worth most
  const SnapshotId new_way = stored(joined(begin, test_tokens(4, 600)));  // + 3
  EXPECT_TRUE(store_->info(old_way)->diverged);
  const SnapshotId other = stored(test_tokens(12, 9000));  // 5, of the 4 that are free
  EXPECT_FALSE(store_->contains(old_way));
  EXPECT_TRUE(store_->contains(new_way) && store_->contains(other));
  EXPECT_EQ(store_->why_gone(old_way)->cause, EvictionCause::kDiverged);
}

TEST_F(SnapshotStoreTest, WhatIsOpenStaysAndWhatCannotBeFreedIsRefusedWithoutLoss) {
  make(12);
  const TestTokens tokens = test_tokens(8, 1000);
  const SnapshotId a = stored(tokens);
  const SnapshotId b = stored(test_tokens(8, 2000));
  const auto open = store_->open(a, 1);
  ASSERT_TRUE(open);
  EXPECT_EQ(code(request(test_tokens(28, 3000))), Code::kResourceExhausted) << "9 of 12 units, 4 are open";
  EXPECT_EQ(store_->counters().refused_full, 1u);
  EXPECT_TRUE(store_->contains(b)) << "nothing was removed in vain";
  EXPECT_EQ(code(store_->reserve(request(test_tokens(24, 3000)))), Code::kOk);
  EXPECT_FALSE(store_->contains(b));
  EXPECT_EQ(compare(*open, tokens), "");
  EXPECT_TRUE(store_->release(open->ticket).ok());
}

TEST_F(SnapshotStoreTest, PagesOfAReservationStayThoughTheirSnapshotsGo) {
  make(12);
  const TestTokens begin = test_tokens(8);
  const SnapshotId first = stored(begin);
  const auto growing = store_->reserve(request(test_tokens(16)));  // shares 2 pages
  ASSERT_TRUE(growing);
  EXPECT_TRUE(store_->drop(first).ok());
  EXPECT_EQ(used_units(), 2u + 2 + 2) << "its fixed part is gone";
  ASSERT_TRUE(store_->commit(growing->ticket, fill(*growing, test_tokens(16))));
  EXPECT_EQ(fault(growing->id, test_tokens(16)), "");
}

TEST_F(SnapshotStoreTest, AnIntervalCheckpointDoesNotPushOutWhatIsWorthMore) {
  make(12);
  stored(test_tokens(8, 1000));
  stored(test_tokens(8, 2000));
  stored(test_tokens(8, 3000));
  StoreRequest cheap = request(test_tokens(8, 4000), SnapshotKind::kInterval);
  const TestTokens tokens = test_tokens(8, 4000);
  cheap.tokens = tokens;
  cheap.cost_seconds = 0.001;
  EXPECT_EQ(code(cheap), Code::kResourceExhausted);
  EXPECT_EQ(store_->counters().refused_value, 1u);
  EXPECT_EQ(store_->list().size(), 3u);
  cheap.cost_seconds = 10;
  EXPECT_TRUE(store(cheap));
  EXPECT_EQ(store_->list().size(), 3u);
}

TEST_F(SnapshotStoreTest, RespectsTheMachinesFreeMemory) {
  constexpr uint64_t kFloor = 1 << 20;
  make(100, kFloor);
  const SnapshotId a = stored(test_tokens(8, 1000));
  const SnapshotId b = stored(test_tokens(8, 2000));
  available_bytes_ = kFloor + 9 * kExtentUnitBytes;  // 8 are used, a snapshot needs 4
  const SnapshotId c = stored(test_tokens(8, 3000));
  EXPECT_FALSE(store_->contains(a));
  EXPECT_TRUE(store_->contains(b) && store_->contains(c));
  EXPECT_EQ(store_->why_gone(a)->cause, EvictionCause::kFloor);

  available_bytes_ = kFloor + 3 * kExtentUnitBytes;  // 5 under the floor with the 8 that are used
  EXPECT_EQ(store_->relieve_memory(), 8 * kExtentUnitBytes) << "whole snapshots";
  EXPECT_EQ(used_units(), 0u);
  EXPECT_EQ(store_->relieve_memory(), 0u) << "enough";
  available_bytes_ = 0;
  EXPECT_EQ(store_->relieve_memory(), 0u) << "nothing left to give";
}

TEST_F(SnapshotStoreTest, OneConversationKeepsAtMostSoManySnapshots) {
  StoreOptions limited = options();
  limited.per_history_max = 3;
  make(limited, 100);
  const SnapshotId other = stored(test_tokens(5, 9000));
  SnapshotId last;
  for (uint32_t count = 4; count <= 40; count += 4) last = stored(test_tokens(count));
  EXPECT_EQ(store_->list().size(), 4u);
  EXPECT_TRUE(store_->contains(last) && store_->contains(other));
  EXPECT_EQ(store_->counters().evicted[static_cast<std::size_t>(EvictionCause::kHistory)], 7u);
}

// --- dropping, owners

TEST_F(SnapshotStoreTest, ADroppedSnapshotStaysForWhoHasItOpen) {
  make(100);
  const TestTokens tokens = test_tokens(9);
  const SnapshotId id = stored(tokens);
  const auto open = store_->open(id, 1);
  ASSERT_TRUE(open);
  EXPECT_TRUE(store_->drop(id).ok());
  EXPECT_FALSE(store_->contains(id));
  EXPECT_TRUE(store_->list().empty());
  EXPECT_EQ(code(store_->open(id, 1)), Code::kNotFound);
  EXPECT_EQ(store_->drop(id).code(), Code::kNotFound);
  EXPECT_EQ(store_->touch(id).code(), Code::kNotFound);
  EXPECT_EQ(compare(*open, tokens), "");
  EXPECT_GT(used_units(), 0u);
  EXPECT_TRUE(store_->release(open->ticket).ok());
  EXPECT_EQ(used_units(), 0u);
  EXPECT_EQ(store_->why_gone(id)->cause, EvictionCause::kDropped);
  EXPECT_EQ(store_->counters().evicted[static_cast<std::size_t>(EvictionCause::kDropped)], 1u);
}

TEST_F(SnapshotStoreTest, ADroppedSnapshotThatIsWantedAgainWhileOpenComesBack) {
  make(100);
  const SnapshotId id = stored(test_tokens(9));
  const auto open = store_->open(id, 1);
  ASSERT_TRUE(open);
  EXPECT_TRUE(store_->drop(id).ok());
  EXPECT_EQ(code(request(test_tokens(9))), Code::kAlreadyExists);
  EXPECT_TRUE(store_->release(open->ticket).ok());
  EXPECT_EQ(fault(id, test_tokens(9)), "");
}

TEST_F(SnapshotStoreTest, TakesBackWhatADeadOwnerHad) {
  make(100);
  const SnapshotId id = stored(test_tokens(8));
  StoreRequest wanted = request(test_tokens(12));
  const TestTokens tokens = test_tokens(12);
  wanted.tokens = tokens;
  wanted.owner = 7;
  const auto reservation = store_->reserve(wanted);
  const auto theirs = store_->open(id, 7);
  const auto ours = store_->open(id, 8);
  ASSERT_TRUE(reservation && theirs && ours);
  store_->release_owner(7);
  EXPECT_EQ(used_units(), 4u);
  EXPECT_EQ(store_->release(theirs->ticket).code(), Code::kNotFound);
  EXPECT_TRUE(store_->info(id)->pinned);
  EXPECT_TRUE(store_->release(ours->ticket).ok());
  EXPECT_FALSE(store_->info(id)->pinned);
}

TEST_F(SnapshotStoreTest, KnowsWhereASnapshotIsAndWhichTokensWereGenerated) {
  make(100);
  const std::vector<TokenRange> generated{{.begin = 2, .end = 5}};
  const TestTokens tokens = test_tokens(8);
  StoreRequest wanted = request(tokens);
  wanted.generated = generated;
  const auto info = store(wanted);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(store_->generated(info->id).value(), generated);
  EXPECT_EQ(store_->keys_of(test_namespace(), tokens, generated)->id, info->id);
  EXPECT_NE(store_->keys_of(test_namespace(), tokens, {})->id, info->id);
  EXPECT_TRUE(info->in_ram);
  EXPECT_FALSE(info->on_disk);
  EXPECT_TRUE(store_->set_elsewhere(info->id, true).ok());
  EXPECT_TRUE(store_->info(info->id)->on_disk);
  const SnapshotId unknown{.high = 3, .low = 4};
  EXPECT_EQ(store_->set_elsewhere(unknown, true).code(), Code::kNotFound);
  EXPECT_EQ(code(store_->tokens(unknown)), Code::kNotFound);
  EXPECT_EQ(code(store_->generated(unknown)), Code::kNotFound);
  EXPECT_FALSE(store_->info(unknown));
}

TEST_F(SnapshotStoreTest, ListsTheLastUsedFirst) {
  make(100);
  const SnapshotId a = stored(test_tokens(8, 1000));
  const SnapshotId b = stored(test_tokens(8, 2000));
  EXPECT_EQ(store_->list().front().id, b);
  EXPECT_TRUE(store_->touch(a).ok());
  EXPECT_EQ(store_->list().front().id, a);
}

}  // namespace
}  // namespace strata::snapshot
