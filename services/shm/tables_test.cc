// The usage board and the residency table.

#include <gtest/gtest.h>

#include <thread>

#include "services/shm/residency_table.h"
#include "services/shm/usage_board.h"

namespace strata::shm {
namespace {

class TablesTest : public testing::Test {
 protected:
  void TearDown() override { remove_stale_segments(run_); }
  // Death tests fork this process: a child that starts anew would leave a segment of its own name behind.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "fast"); }
  std::string name(std::string_view what) const { return segment_name(run_, what, random_instance_id()); }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(random_instance_id()));
};

TEST_F(TablesTest, CountsUsesPerLayerAndExpert) {
  auto owner = UsageBoard::create(name("usage"), 3, 5);
  ASSERT_TRUE(owner) << owner.error().message();
  auto reader =
      UsageBoard::attach(owner->segment().name(), owner->segment().bytes(), owner->segment().instance_id());
  ASSERT_TRUE(reader) << reader.error().message();
  uint64_t value = 1;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t expert = 0; expert < 5; ++expert) {
      owner->decode(layer, expert).fetch_add(value, std::memory_order_relaxed);
      owner->prefill(layer, expert).fetch_add(100 * value++, std::memory_order_relaxed);
    }
  }
  value = 1;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t expert = 0; expert < 5; ++expert) {
      EXPECT_EQ(reader->decode(layer, expert).load(), value);
      EXPECT_EQ(reader->prefill(layer, expert).load(), 100 * value++);
    }
  }
  EXPECT_DEATH(static_cast<void>(reader->decode(3, 0)), "layer 3 expert 0");
}

TEST_F(TablesTest, CountsHitsPerLayerBesideTheUses) {
  auto owner = UsageBoard::create(name("usage"), 2, 3);
  ASSERT_TRUE(owner) << owner.error().message();
  owner->layer(1).decode_hits = 7;
  owner->layer(1).prefill_misses = 9;
  owner->decode(0, 0) = 5;
  EXPECT_EQ(owner->layer(0).decode_hits, 0U);
  EXPECT_EQ(owner->layer(1).decode_hits, 7U);
  EXPECT_EQ(owner->layer(1).prefill_misses, 9U);
  EXPECT_EQ(owner->decode(1, 2), 0U);
  EXPECT_DEATH(static_cast<void>(owner->layer(2)), "layer 2 of 2");
}

// Two mappings of one board, as in two processes: the sleeper sees the rows of the window it is woken for.
TEST_F(TablesTest, AFinishedWindowWakesWhoeverWaitsForIt) {
  auto owner = UsageBoard::create(name("usage"), 1, 1);
  ASSERT_TRUE(owner) << owner.error().message();
  auto reader =
      UsageBoard::attach(owner->segment().name(), owner->segment().bytes(), owner->segment().instance_id());
  ASSERT_TRUE(reader) << reader.error().message();
  uint64_t seen_tokens = 0;
  std::thread waiter([&] {
    uint32_t rung = reader->header().window_counted.seq.load();
    while (rung == 0) rung = reader->header().window_counted.wait(0, {.park_after_us = 1}, {}, 0);
    seen_tokens = reader->header().decode_tokens.load(std::memory_order_relaxed);
  });
  while (reader->header().window_counted.sleepers.load() == 0) std::this_thread::yield();
  owner->window_finished({.prompt = 2, .generated = 3});
  waiter.join();
  EXPECT_EQ(seen_tokens, 3U);
  EXPECT_EQ(reader->header().prefill_tokens, 2U);
  EXPECT_EQ(reader->header().windows, 1U);
}

TEST_F(TablesTest, RefusesAUsageBoardOfAnotherShape) {
  EXPECT_FALSE(UsageBoard::create(name("usage"), 0, 5));
  EXPECT_FALSE(UsageBoard::create(name("usage"), 1, kExpertsMax + 1));
  auto owner = UsageBoard::create(name("usage"), 3, 5);
  ASSERT_TRUE(owner);
  const auto attach = [&] {
    return UsageBoard::attach(owner->segment().name(), owner->segment().bytes(),
                              owner->segment().instance_id());
  };
  for (uint32_t layers : {0U, 4U, UINT32_MAX}) {
    owner->header().layers = layers;
    EXPECT_FALSE(attach()) << layers;
  }
  owner->header().layers = 3;
  EXPECT_TRUE(attach());
}

TEST_F(TablesTest, PacksASlotEntryWithoutLoss) {
  const SlotEntry entry{.state = SlotState::kReserved, .layer = 65535, .expert = 1023};
  const SlotEntry back = SlotEntry::unpack(entry.packed());
  EXPECT_EQ(back.state, entry.state);
  EXPECT_EQ(back.layer, entry.layer);
  EXPECT_EQ(back.expert, entry.expert);
}

TEST_F(TablesTest, ShowsTheSlotsToWhoeverAttaches) {
  auto owner = ResidencyTable::create(name("residency"), 4, 2, 1024);
  ASSERT_TRUE(owner) << owner.error().message();
  auto reader = ResidencyTable::attach(owner->segment().name(), owner->segment().bytes(),
                                       owner->segment().instance_id());
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(reader->slot(3).state, SlotState::kEmpty);
  owner->set_slot(3, {.state = SlotState::kResident, .layer = 1, .expert = 17});
  owner->header().epoch.fetch_add(1, std::memory_order_release);
  EXPECT_EQ(reader->header().epoch.load(std::memory_order_acquire), 1U);
  EXPECT_EQ(reader->slot(3).state, SlotState::kResident);
  EXPECT_EQ(reader->slot(3).layer, 1U);
  EXPECT_EQ(reader->slot(3).expert, 17U);
  EXPECT_EQ(reader->header().slot_bytes, 1024U);
  EXPECT_DEATH(static_cast<void>(reader->slot(4)), "slot 4 of 4");
}

TEST_F(TablesTest, AllowsAnArenaWithoutSlots) {
  auto owner = ResidencyTable::create(name("residency"), 0, 2, 1024);
  ASSERT_TRUE(owner);
  EXPECT_TRUE(ResidencyTable::attach(owner->segment().name(), owner->segment().bytes(),
                                     owner->segment().instance_id()));
}

TEST_F(TablesTest, RefusesAResidencyTableWhoseSlotsDoNotFit) {
  auto owner = ResidencyTable::create(name("residency"), 4, 2, 1024);
  ASSERT_TRUE(owner);
  owner->header().slots = 5;
  EXPECT_FALSE(ResidencyTable::attach(owner->segment().name(), owner->segment().bytes(),
                                      owner->segment().instance_id()));
}

// The victim's bytes are read by windows until the slot is reserved; whoever sees it reserved may overwrite
// them. Under ThreadSanitizer this proves the orders of set_slot() and slot().
TEST_F(TablesTest, OrdersTheOldBytesOfASlotBeforeItsNewState) {
  auto table = ResidencyTable::create(name("residency"), 1, 1, 64);
  ASSERT_TRUE(table);
  uint64_t slot_bytes = 11;
  std::thread cache_manager([&] {
    while (table->slot(0).state != SlotState::kReserved) std::this_thread::yield();
    slot_bytes = 22;
  });
  const uint64_t seen_by_window = slot_bytes;
  table->set_slot(0, {.state = SlotState::kReserved, .layer = 0, .expert = 2});
  cache_manager.join();
  EXPECT_EQ(seen_by_window, 11U);
  EXPECT_EQ(slot_bytes, 22U);
}

}  // namespace
}  // namespace strata::shm
