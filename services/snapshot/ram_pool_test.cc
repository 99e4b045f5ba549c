#include "services/snapshot/ram_pool.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <array>

#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {
namespace {

class RamPoolTest : public StoreFixture {
 protected:
  static Code code(RamPool& pool, std::vector<uint64_t> sizes) {
    const auto extents = pool.reserve(sizes);
    return extents ? Code::kOk : extents.error().code();
  }
  static constexpr uint64_t kUnit = kExtentUnitBytes;
};

TEST_F(RamPoolTest, UsesMemoryForWhatIsReservedAndForNothingElse) {
  auto memory = pool(64 * kUnit);
  ASSERT_TRUE(memory) << memory.error().message();
  const uint64_t header = memory->resident_bytes();
  EXPECT_EQ(header, kUnit);
  const std::array<uint64_t, 3> sizes{1, kUnit, kUnit + 1};
  const auto extents = memory->reserve(sizes);
  ASSERT_TRUE(extents) << extents.error().message();
  EXPECT_EQ(memory->used_bytes(), 4 * kUnit);
  EXPECT_EQ(memory->resident_bytes(), header + 4 * kUnit)
      << "taken when it is reserved, not when it is touched";
  EXPECT_EQ((*extents)[2].bytes, kUnit + 1);
  memory->give_back((*extents)[2]);
  EXPECT_EQ(memory->used_bytes(), 2 * kUnit);
  EXPECT_EQ(memory->resident_bytes(), header + 2 * kUnit) << "given back at once";
}

TEST_F(RamPoolTest, ReservedMemoryIsZeroAgainAfterItWasUsed) {
  auto memory = pool(4 * kUnit);
  ASSERT_TRUE(memory);
  const std::array<uint64_t, 1> all{4 * kUnit};
  auto extents = memory->reserve(all);
  ASSERT_TRUE(extents);
  std::ranges::fill(memory->bytes(extents->front()), std::byte{0xff});
  memory->give_back(extents->front());
  extents = memory->reserve(all);
  ASSERT_TRUE(extents);
  for (std::byte byte : memory->bytes(extents->front())) ASSERT_EQ(byte, std::byte{});
}

TEST_F(RamPoolTest, TheBudgetIsNeverExceeded) {
  auto memory = pool(10 * kUnit + 100);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->budget_bytes(), 10 * kUnit);
  EXPECT_EQ(code(*memory, {11 * kUnit}), Code::kOutOfRange);
  EXPECT_EQ(code(*memory, {6 * kUnit, 5 * kUnit}), Code::kOutOfRange);
  EXPECT_EQ(code(*memory, {UINT64_MAX - 5}), Code::kOutOfRange);
  EXPECT_EQ(code(*memory, {UINT64_MAX / 2, UINT64_MAX / 2, 10}), Code::kOutOfRange);
  EXPECT_EQ(memory->used_bytes(), 0u);
  EXPECT_EQ(code(*memory, {6 * kUnit}), Code::kOk);
  EXPECT_EQ(code(*memory, {kUnit, 4 * kUnit}), Code::kResourceExhausted);
  EXPECT_EQ(memory->used_bytes(), 6 * kUnit) << "all or nothing";
  EXPECT_EQ(code(*memory, {4 * kUnit}), Code::kOk);
  EXPECT_EQ(memory->resident_bytes(), 11 * kUnit);
}

TEST_F(RamPoolTest, ABudgetOfNothingHoldsNothing) {
  auto memory = pool(0);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_EQ(code(*memory, {1}), Code::kOutOfRange);
  EXPECT_EQ(memory->room(), 0u);
}

TEST_F(RamPoolTest, KeepsTheMachinesFreeMemoryAboveTheFloor) {
  auto memory = pool(10 * kUnit, 100 * kUnit);
  ASSERT_TRUE(memory);
  available_bytes_ = 103 * kUnit;
  EXPECT_EQ(memory->room(), 3 * kUnit);
  EXPECT_EQ(memory->bytes_under_floor(), 0u);
  EXPECT_EQ(code(*memory, {4 * kUnit}), Code::kResourceExhausted);
  EXPECT_EQ(code(*memory, {3 * kUnit}), Code::kOk);
  available_bytes_ = 98 * kUnit;
  EXPECT_EQ(memory->room(), 0u);
  EXPECT_EQ(memory->bytes_under_floor(), 2 * kUnit);
}

TEST_F(RamPoolTest, HolesDoNotKeepTheBudgetFromBeingUsed) {
  auto memory = pool(64 * kUnit);
  ASSERT_TRUE(memory);
  const std::vector<uint64_t> ones(64, kUnit);
  const auto extents = memory->reserve(ones);
  ASSERT_TRUE(extents);
  for (std::size_t i = 0; i < extents->size(); i += 2) memory->give_back((*extents)[i]);
  EXPECT_EQ(code(*memory, {32 * kUnit}), Code::kOk) << "no hole of the used half is longer than one unit";
}

TEST_F(RamPoolTest, IsSharedWithWhoeverAttaches) {
  auto memory = pool(8 * kUnit);
  ASSERT_TRUE(memory);
  const std::array<uint64_t, 2> sizes{100, 5000};
  const auto extents = memory->reserve(sizes);
  ASSERT_TRUE(extents);
  const shm::Segment& segment = memory->segment();
  auto view = RamPoolView::attach(segment.name(), segment.bytes(), segment.instance_id());
  ASSERT_TRUE(view) << view.error().message();
  const auto theirs = view->bytes((*extents)[1]);
  ASSERT_TRUE(theirs) << theirs.error().message();
  (*theirs)[4999] = std::byte{42};
  EXPECT_EQ(memory->bytes((*extents)[1])[4999], std::byte{42});

  for (const Extent& wrong :
       {Extent{.offset = 0, .bytes = 10}, Extent{.offset = kUnit, .bytes = 1 << 20},
        Extent{.offset = UINT64_MAX - 10, .bytes = 100}, Extent{.offset = kUnit, .bytes = UINT64_MAX}}) {
    const auto outside = view->bytes(wrong);
    ASSERT_FALSE(outside);
    EXPECT_EQ(outside.error().code(), Code::kOutOfRange);
  }
  EXPECT_FALSE(RamPoolView::attach(segment.name(), segment.bytes(), segment.instance_id() + 1));
}

TEST_F(RamPoolTest, SaysWhenSharedMemoryIsTooSmallForTheBudget) {
  struct statvfs room{};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_blocks == 0) GTEST_SKIP() << "/dev/shm has no limit here";
  const uint64_t too_much = (uint64_t{room.f_blocks} + 1) * room.f_frsize;
  const auto memory = pool(too_much);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), Code::kResourceExhausted);
  EXPECT_NE(memory.error().message().find("--shm-size"), std::string::npos) << memory.error().message();
}

TEST_F(RamPoolTest, RefusesAnImpossibleBudget) {
  const auto memory = pool(UINT64_MAX);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::snapshot
