// Random operations on the store beside a simple model: which states were committed and which are open,
// nothing else. After every step: the books agree (no overlap, no byte beyond the budget), whatever the store
// offers has exactly its bytes, what is open still has them, and whatever is gone was removed for a reason
// that the store can name.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {
namespace {

class StorePropertyTest : public StoreFixture {
 protected:
  struct Writing {
    Reservation reservation;
    TestTokens tokens;
  };
  struct Reading {
    OpenSnapshot open;
    TestTokens tokens;
  };

  // A conversation that branches: with few alternatives per position, so that prefixes meet often.
  TestTokens random_tokens() {
    TestTokens tokens(1 + random_() % 30);
    const bool shares_a_root = random_() % 3 != 0;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(shares_a_root && i < 6 ? i : random_() % (i % 5 == 0 ? 2 : 1));
    return tokens;
  }
  template <class Map>
  auto any_of(Map& map) {
    return std::next(map.begin(), static_cast<long>(random_() % map.size()));
  }

  void step() {
    now_ms_ += static_cast<int64_t>(random_() % 1000);
    const uint32_t choice = random_() % 100;
    if (choice < 45) {
      begin_writing();
    } else if (choice < 65 && !writing_.empty()) {
      end_writing(choice < 60);
    } else if (choice < 75 && !known_.empty()) {
      begin_reading();
    } else if (choice < 88 && !reading_.empty()) {
      const auto reading = any_of(reading_);
      ASSERT_EQ(compare(reading->second.open, reading->second.tokens), "");
      ASSERT_TRUE(store_->release(reading->first).ok());
      reading_.erase(reading);
    } else if (choice < 92 && !known_.empty()) {
      const auto known = any_of(known_);
      const bool there = store_->contains(known->first);
      ASSERT_EQ(store_->drop(known->first).ok(), there);
      ASSERT_FALSE(store_->contains(known->first));
    } else if (choice < 94) {
      available_bytes_ = random_() % (60 * kExtentUnitBytes);
      store_->relieve_memory();
    } else if (choice < 98) {
      available_bytes_ = uint64_t{1} << 40;
    } else {
      store_->release_owner(1);
      writing_.clear();
      reading_.clear();
    }
    check();
  }

  void begin_writing() {
    const TestTokens tokens = random_tokens();
    const auto kind = static_cast<SnapshotKind>(random_() % kSnapshotKinds);
    auto reservation = store_->reserve(request(tokens, kind));
    if (!reservation) {
      const Code code = reservation.error().code();
      ASSERT_TRUE(code == Code::kResourceExhausted || code == Code::kOutOfRange ||
                  code == Code::kAlreadyExists)
          << reservation.error().message();
      return;
    }
    writing_.emplace(reservation->ticket, Writing{.reservation = *reservation, .tokens = tokens});
  }

  void end_writing(bool commit) {
    const auto writing = any_of(writing_);
    if (commit) {
      const auto info =
          store_->commit(writing->first, fill(writing->second.reservation, writing->second.tokens));
      ASSERT_TRUE(info) << info.error().message();
      known_[info->id] = writing->second.tokens;
    } else {
      ASSERT_TRUE(store_->abandon(writing->first).ok());
    }
    writing_.erase(writing);
  }

  void begin_reading() {
    const auto known = any_of(known_);
    auto open = store_->open(known->first, 1);
    ASSERT_EQ(open.has_value(), store_->contains(known->first));
    if (!open) {
      ASSERT_TRUE(store_->why_gone(known->first)) << "somebody will ask";
      return;
    }
    reading_.emplace(open->ticket, Reading{.open = *open, .tokens = known->second});
  }

  void check() {
    store_->check_books();
    ASSERT_LE(store_->pool().used_bytes(), store_->pool().budget_bytes());
    ASSERT_EQ(store_->pool().resident_bytes(), store_->pool().used_bytes() + kExtentUnitBytes);
  }

  void check_bytes() {
    for (const SnapshotInfo& info : store_->list()) ASSERT_EQ(fault(info.id, known_.at(info.id)), "");
    for (const auto& [ticket, reading] : reading_) ASSERT_EQ(compare(reading.open, reading.tokens), "");
  }

  std::mt19937 random_;
  std::map<Ticket, Writing> writing_;
  std::map<Ticket, Reading> reading_;
  std::map<SnapshotId, TestTokens> known_;
};

TEST_F(StorePropertyTest, KeepsItsPromisesInAnyOrderOfCalls) {
  uint64_t evicted = 0, shared = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    random_.seed(seed);
    writing_.clear();
    reading_.clear();
    known_.clear();
    StoreOptions store_options = options();
    store_options.per_history_max = seed % 3 == 0 ? 4 : 0;
    make(store_options, 15 + seed * 5);
    for (int i = 0; i < 1500 && !HasFatalFailure(); ++i) {
      step();
      if (i % 25 == 0) check_bytes();
    }
    if (HasFatalFailure()) return;
    store_->release_owner(1);
    for (const SnapshotInfo& info : store_->list()) ASSERT_TRUE(store_->drop(info.id).ok());
    EXPECT_EQ(store_->pool().used_bytes(), 0u) << "nothing leaks";
    EXPECT_EQ(store_->metadata_bytes(), 0u);
    for (uint64_t count : store_->counters().evicted) evicted += count;
    shared += store_->counters().pages_shared;
  }
  EXPECT_GT(evicted, 1000u) << "or the test has come to test nothing";
  EXPECT_GT(shared, 1000u);
}

// The same calls give the same store: ids, evictions, list.
TEST_F(StorePropertyTest, IsDeterministic) {
  std::vector<std::string> seen;
  const int64_t begin_ms = now_ms_;
  for (int run = 0; run < 2; ++run) {
    now_ms_ = begin_ms;
    random_.seed(99);
    writing_.clear();
    reading_.clear();
    known_.clear();
    make(30);
    for (int i = 0; i < 500 && !HasFatalFailure(); ++i) step();
    std::string text;
    for (const SnapshotInfo& info : store_->list()) text += info.id.text() + " ";
    for (uint64_t count : store_->counters().evicted) text += std::to_string(count) + " ";
    seen.push_back(text);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace strata::snapshot
