// Parents, histories, sharing and values are checked on hand-made forests; what random operations do to them
// is checked in store_property_test.cc.
#include "services/snapshot/catalog.h"

#include <gtest/gtest.h>

#include "services/snapshot/eviction_log.h"
#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {
namespace {

class CatalogTest : public testing::Test {
 protected:
  CatalogEntry& add(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kTurn,
                    uint64_t name_space = 1) {
    const auto words = pack_tokens(tokens, {}).value();
    const StateKeys keys = keys_.keys(test_namespace(name_space), words);
    EntryToInsert entry{.id = keys.id,
                        .name_space = test_namespace(name_space),
                        .kind = kind,
                        .cost_seconds = static_cast<double>(tokens.size()),
                        .created_ms = now_ms_,
                        .last_used_ms = now_ms_,
                        .words = words,
                        .own_bytes = 100};
    for (const Hash128& key : keys.pages) entry.pages.push_back({.key = key, .bytes = 10});
    now_ms_ += 1000;
    return catalog_.insert(std::move(entry));
  }
  static TestTokens joined(TestTokens tokens, const TestTokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }
  SnapshotId victim() const { return catalog_.victim(now_ms_)->id; }

  KeyMaker keys_{StoreSeed{}, digest(test_identity()), kTestPageTokens};
  int64_t now_ms_ = 1'000'000;
  Catalog catalog_{kTestPageTokens, ValueOptions{}};
};

TEST_F(CatalogTest, AParentIsTheLongestPrefixAndItsHeirInheritsTheChildren) {
  const auto& whole = add(test_tokens(21));
  EXPECT_EQ(whole.parent, nullptr);
  const auto& begin = add(test_tokens(6));
  EXPECT_EQ(whole.parent, &begin) << "one that comes later goes in between";
  const auto& middle = add(test_tokens(12));
  const auto& inside_a_page = add(test_tokens(14));
  EXPECT_EQ(begin.parent, nullptr);
  EXPECT_EQ(middle.parent, &begin);
  EXPECT_EQ(inside_a_page.parent, &middle);
  EXPECT_EQ(whole.parent, &inside_a_page);
  EXPECT_EQ(begin.children, std::vector<CatalogEntry*>{catalog_.find(middle.id)});

  TestTokens other_end = test_tokens(13);
  other_end[12] = 5;
  EXPECT_EQ(add(other_end).parent, &middle);
  EXPECT_EQ(add(test_tokens(21), SnapshotKind::kTurn, 2).parent, nullptr) << "of another namespace";

  catalog_.remove(middle.id);
  EXPECT_EQ(inside_a_page.parent, &begin);
  catalog_.remove(begin.id);
  EXPECT_EQ(inside_a_page.parent, nullptr);
  EXPECT_EQ(add(test_tokens(6)).children.size(), 2u);
}

TEST_F(CatalogTest, OriginsCountForPrefixes) {
  const auto& read = add(test_tokens(6));
  const auto words = pack_tokens(test_tokens(8), std::vector<TokenRange>{{.begin = 5, .end = 8}}).value();
  const StateKeys keys = keys_.keys(test_namespace(), words);
  const auto& generated = catalog_.insert({.id = keys.id,
                                           .name_space = test_namespace(),
                                           .words = words,
                                           .pages = {{.key = keys.pages[0]}, {.key = keys.pages[1]}}});
  EXPECT_EQ(generated.parent, nullptr) << "token 5 was read in one and generated in the other";
  EXPECT_EQ(read.pages[0], generated.pages[0]);
}

TEST_F(CatalogTest, CountsWhatRemovingFrees) {
  const auto& begin = add(test_tokens(8));    // 2 pages
  const auto& longer = add(test_tokens(17));  // 4 pages, 2 of its own
  EXPECT_EQ(catalog_.bytes(), 240u);
  EXPECT_EQ(catalog_.freed_bytes(begin), 100u);
  EXPECT_EQ(catalog_.freed_bytes(longer), 120u);
  EXPECT_EQ(catalog_.info(longer, Tier::kRam).shared_bytes, 20u);
  EXPECT_EQ(catalog_.remove(begin.id).size(), 0u);
  EXPECT_EQ(catalog_.freed_bytes(longer), 140u);
  EXPECT_EQ(catalog_.remove(longer.id).size(), 4u);
  EXPECT_EQ(catalog_.bytes(), 0u);
  EXPECT_EQ(catalog_.metadata_bytes(), 0u);
  EXPECT_EQ(catalog_.page_count(), 0u);
}

TEST_F(CatalogTest, PinsAndHoldsKeepBytes) {
  auto& begin = add(test_tokens(8));
  auto& longer = add(test_tokens(17));
  catalog_.pin(longer);
  catalog_.pin(longer);
  EXPECT_EQ(catalog_.pinned_bytes(), 140u) << "shared pages are pinned with it";
  EXPECT_EQ(victim(), begin.id);
  catalog_.pin(begin);
  EXPECT_FALSE(catalog_.victim(now_ms_));
  catalog_.unpin(longer);
  catalog_.unpin(longer);
  EXPECT_EQ(catalog_.pinned_bytes(), 120u);
  catalog_.unpin(begin);

  const std::vector<Hash128> keys{begin.pages[0]->key, begin.pages[1]->key};
  catalog_.hold_pages(keys);
  EXPECT_EQ(catalog_.pinned_bytes(), 20u);
  EXPECT_EQ(catalog_.remove(longer.id).size(), 2u);
  EXPECT_EQ(catalog_.remove(begin.id).size(), 0u);
  EXPECT_EQ(catalog_.bytes(), 20u);
  EXPECT_EQ(catalog_.let_go_pages(keys), keys);
  EXPECT_EQ(catalog_.pinned_bytes(), 0u);
}

// Two chats over one system prompt are two conversations; an edited message is one conversation going another
// way.
TEST_F(CatalogTest, HistoriesBeginBehindRoots) {
  const auto& root = add(test_tokens(8), SnapshotKind::kRoot);
  const auto& chat = add(joined(test_tokens(8), test_tokens(5, 500)));
  const auto& other_chat = add(joined(test_tokens(8), test_tokens(5, 600)));
  EXPECT_NE(chat.history, other_chat.history);
  EXPECT_NE(chat.history, root.history);
  const auto& continued = add(joined(test_tokens(8), test_tokens(9, 500)));
  EXPECT_EQ(continued.history, chat.history);
  EXPECT_EQ(catalog_.history_size(chat.history), 2u);
  for (const auto* entry : {&root, &chat, &other_chat, &continued}) EXPECT_FALSE(catalog_.diverged(*entry));
  const Hash128 history = chat.history;
  catalog_.remove(chat.id);
  EXPECT_EQ(continued.history, history) << "also when its beginning is gone";
}

TEST_F(CatalogTest, ADivergedBranchGoesFirstUnlessSomebodyReturnsToIt) {
  const TestTokens begin = test_tokens(8);
  const auto& turn = add(begin);
  auto& branch = add(joined(begin, test_tokens(40, 500)));  // worth much
  EXPECT_FALSE(catalog_.diverged(branch));
  const auto& edited = add(joined(begin, test_tokens(1, 600)));  // worth little
  EXPECT_TRUE(catalog_.diverged(branch));
  EXPECT_FALSE(catalog_.diverged(turn)) << "a prefix of the latest";
  EXPECT_FALSE(catalog_.diverged(edited));
  EXPECT_EQ(victim(), branch.id);
  branch.last_used_ms = now_ms_;
  EXPECT_FALSE(catalog_.diverged(branch));
  EXPECT_NE(victim(), branch.id);

  branch.last_used_ms = 0;
  catalog_.remove(edited.id);
  EXPECT_FALSE(catalog_.diverged(branch)) << "the latest again";
}

TEST_F(CatalogTest, WhatLiesInsideOfAHistoryGoesBeforeItsEnd) {
  const auto& first = add(test_tokens(40));
  const auto& second = add(test_tokens(44));
  const auto& end = add(test_tokens(48));
  EXPECT_EQ(victim(), second.id) << "reading on from the first costs least";
  catalog_.remove(second.id);
  EXPECT_EQ(victim(), first.id) << "it serves edits only, the end serves the next turn";
  catalog_.remove(first.id);
  EXPECT_EQ(victim(), end.id);
}

TEST_F(CatalogTest, KeepsOneSnapshotOfEachHistoryInViewOfItsLimit) {
  const auto& a = add(test_tokens(40));
  add(test_tokens(4, 900));
  EXPECT_EQ(catalog_.victim_of_history(a.history, now_ms_)->id, a.id) << "though the other one is worth less";
  EXPECT_FALSE(catalog_.victim_of_history(Hash128{.high = 1, .low = 1}, now_ms_));
  EXPECT_EQ(catalog_.history_size(Hash128{.high = 1, .low = 1}), 0u);
}

// --- value

TEST(Value, GrowsWithTimeSavedAndFallsWithAgeAndBytes) {
  const ValueOptions options{.half_life_ms = 1000};
  const ValueInputs base{.seconds_lost = 8, .idle_ms = 0, .freed_bytes = 100};
  const auto with = [&](auto change) {
    ValueInputs inputs = base;
    change(inputs);
    return snapshot_value(inputs, options);
  };
  const double value = snapshot_value(base, options);
  EXPECT_DOUBLE_EQ(value, 0.08);
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.idle_ms = 1000; }), value / 2);
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.idle_ms = 3000; }), value / 8);
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.idle_ms = -5; }), value) << "the clock was set back";
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.freed_bytes = 200; }), value / 2);
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.freed_bytes = 0; }), 8.0);
  EXPECT_DOUBLE_EQ(with([](auto& i) { i.seconds_lost = -1; }), 0.0);
  EXPECT_LT(with([](auto& i) { i.elsewhere = true; }), value);
  EXPECT_EQ(with([](auto& i) { i.idle_ms = INT64_MAX; }), 0.0);
}

TEST(Value, PlacesInAHistoryHaveAnOrder) {
  const auto value = [](SnapshotKind kind, bool leaf) {
    return snapshot_value({.kind = kind, .leaf = leaf, .seconds_lost = 1, .freed_bytes = 1}, {});
  };
  EXPECT_EQ(value(SnapshotKind::kEnd, true), value(SnapshotKind::kRoot, false));
  EXPECT_GT(value(SnapshotKind::kEnd, true), value(SnapshotKind::kBeforeLastUser, false));
  EXPECT_GT(value(SnapshotKind::kBeforeLastUser, false), value(SnapshotKind::kTurn, false));
  EXPECT_GT(value(SnapshotKind::kTurn, false), value(SnapshotKind::kInterval, false));
  EXPECT_GT(value(SnapshotKind::kTurn, true), value(SnapshotKind::kInterval, true));
}

// --- eviction log

TEST(EvictionLog, RemembersForABoundedTimeAndNumber) {
  EvictionLog log({.count_max = 3, .age_ms_max = 100});
  const auto id = [](uint64_t number) { return SnapshotId{.high = 0, .low = number}; };
  for (uint64_t i = 1; i <= 4; ++i)
    log.add({.id = id(i), .cause = EvictionCause::kDiverged, .when_ms = static_cast<int64_t>(i) * 10});
  EXPECT_EQ(log.size(), 3u);
  EXPECT_FALSE(log.find(id(1), 40));
  EXPECT_EQ(log.find(id(2), 40)->cause, EvictionCause::kDiverged);
  EXPECT_TRUE(log.find(id(2), 120));
  EXPECT_FALSE(log.find(id(2), 121)) << "too long ago";
  log.forget(id(3));
  EXPECT_FALSE(log.find(id(3), 40)) << "stored again";
  log.add({.id = id(4), .cause = EvictionCause::kFloor, .when_ms = 141});
  EXPECT_EQ(log.size(), 1u) << "the others are too old";
  EXPECT_EQ(log.find(id(4), 141)->cause, EvictionCause::kFloor) << "the latest one counts";
}

}  // namespace
}  // namespace strata::snapshot
