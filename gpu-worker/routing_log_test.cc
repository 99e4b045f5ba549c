#include "gpu-worker/routing_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace strata::gpu_worker {
namespace {

constexpr RoutingShape kShape{.layers = 3, .used = 2};

// What the device says: the pick names its row, layer and place.
uint16_t pick_of(uint32_t position, uint32_t layer, uint32_t k) {
  return static_cast<uint16_t>(position * 10 + layer * 2 + k);
}
void add_rows(RoutingLog& log, uint32_t first, uint32_t count) {
  std::vector<RoutedRow> rows;
  std::vector<uint16_t> routed(std::size_t{count} * kShape.picks());
  for (uint32_t i = 0; i < count; ++i) {
    rows.push_back({.sequence = 7, .position = first + i, .token = static_cast<int32_t>(first + i)});
    for (uint32_t layer = 0; layer < kShape.layers; ++layer)
      for (uint32_t k = 0; k < kShape.used; ++k)
        routed[(layer * count + i) * kShape.used + k] = pick_of(first + i, layer, k);
  }
  log.add(rows, routed);
}
void expect_row(const RoutingLog::Taken& taken, std::size_t row, uint32_t position) {
  ASSERT_LT(row, taken.rows.size());
  EXPECT_EQ(taken.rows[row].sequence, 7u);
  EXPECT_EQ(taken.rows[row].position, position);
  EXPECT_EQ(taken.rows[row].token, static_cast<int32_t>(position));
  for (uint32_t layer = 0; layer < kShape.layers; ++layer)
    for (uint32_t k = 0; k < kShape.used; ++k)
      EXPECT_EQ(taken.experts[row * kShape.picks() + layer * kShape.used + k], pick_of(position, layer, k));
}

TEST(RoutingLog, GivesRowsInOrderWithTheirExpertsSideBySide) {
  RoutingLog log(kShape, 8, [] {});
  add_rows(log, 0, 3);
  add_rows(log, 3, 1);
  auto taken = log.take(2);
  ASSERT_EQ(taken.rows.size(), 2u);
  ASSERT_EQ(taken.experts.size(), 2u * kShape.picks());
  expect_row(taken, 0, 0);
  expect_row(taken, 1, 1);
  taken = log.take(100);
  ASSERT_EQ(taken.rows.size(), 2u);
  expect_row(taken, 1, 3);
  EXPECT_EQ(taken.dropped, 0u);
  EXPECT_TRUE(log.take(100).rows.empty());
}

TEST(RoutingLog, DropsWhatFindsNoRoomAndCountsIt) {
  RoutingLog log(kShape, 4, [] {});
  add_rows(log, 0, 3);
  add_rows(log, 3, 3);
  auto taken = log.take(100);
  ASSERT_EQ(taken.rows.size(), 4u);
  expect_row(taken, 3, 3);
  EXPECT_EQ(taken.dropped, 2u);
  add_rows(log, 6, 2);
  taken = log.take(100);
  ASSERT_EQ(taken.rows.size(), 2u) << "there is room again";
  expect_row(taken, 0, 6);
  EXPECT_EQ(taken.dropped, 0u) << "told once";
}

// Under ThreadSanitizer, too.
TEST(RoutingLog, TwoThreadsLoseNothingThatWasNotCounted) {
  constexpr uint32_t kRows = 20000;
  RoutingLog log(kShape, 64, [] {});
  std::thread loop([&] {
    for (uint32_t row = 0; row < kRows; row += 5) add_rows(log, row % 6000, 5);
  });
  uint64_t seen = 0, dropped = 0;
  while (seen + dropped < kRows) {
    const auto taken = log.take(7);
    dropped += taken.dropped;
    for (std::size_t row = 0; row < taken.rows.size(); ++row)
      expect_row(taken, row, taken.rows[row].position);
    seen += taken.rows.size();
    if (taken.rows.empty()) std::this_thread::yield();
  }
  loop.join();
  EXPECT_EQ(seen + dropped, kRows);
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace strata::gpu_worker
