#include "gpu-worker/state_layout.h"

#include <gmock/gmock.h>

#include <cstring>

#include "gpu-worker/state_copies.h"

namespace strata::gpu_worker {
namespace {

// Room for 100 tokens: a page and a part of one.
StateLayout layout() {
  return StateLayout({{"delta.0", 100, 0, 0},
                      {"keys.1", 800, 1, 8},
                      {"block_keys.1", 25 * 12, 4, 12},
                      {"block_tail.1", 36, 0, 0}});
}

TEST(StateLayout, CutsFixedPartAndPages) {
  const StateLayout made = layout();
  EXPECT_EQ(made.fixed_bytes(), 128U + 64U);
  EXPECT_EQ(made.page_bytes(), 64U * 8U + 192U);
  ASSERT_EQ(made.fixed_parts().size(), 2U);
  EXPECT_EQ(made.fixed_parts()[1].name, "block_tail.1");
  EXPECT_EQ(made.fixed_parts()[1].offset, 128U);
  EXPECT_EQ(made.fixed_parts()[1].bytes, 36U);
}

TEST(StateLayout, APageHoldsTheTokensThatAreThereAndTheFinishedBlocks) {
  const StateLayout made = layout();
  const auto pieces = made.page_pieces(1, 70);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].at, 64U * 8U);
  EXPECT_EQ(pieces[0].bytes, 6U * 8U);
  EXPECT_EQ(pieces[1].at, 16U * 12U);
  EXPECT_EQ(pieces[1].bytes, 12U) << "six tokens are one block and a tail";
  EXPECT_EQ(made.page_pieces(0, 70)[0].bytes, 64U * 8U);
  EXPECT_EQ(made.page_pieces(0, 3).size(), 1U) << "no block is finished";
  EXPECT_TRUE(made.page_pieces(1, 64).empty());
  EXPECT_EQ(state_pages(0), 0U);
  EXPECT_EQ(state_pages(64), 1U);
  EXPECT_EQ(state_pages(65), 2U);
}

TEST(StateLayout, TheHashIsThatOfWhatIsKept) {
  const auto with = [](auto change) {
    std::vector<StateArray> arrays = layout().arrays();
    change(arrays);
    return StateLayout(arrays).hash();
  };
  const uint64_t same = layout().hash();
  EXPECT_EQ(with([](auto& arrays) { arrays[1].bytes *= 2; }), same) << "the context's length is not in it";
  EXPECT_NE(with([](auto& arrays) { arrays[1].unit_bytes = 4; }), same);
  EXPECT_NE(with([](auto& arrays) { arrays[0].bytes = 99; }), same);
  EXPECT_NE(with([](auto& arrays) { arrays[0].name = "delta.2"; }), same);
  EXPECT_NE(with([](auto& arrays) { arrays.pop_back(); }), same);
}

TEST(StateLayout, CopiesThereAndBack) {
  const StateLayout made = layout();
  std::vector<std::vector<std::byte>> from, to;
  uint8_t value = 1;
  for (const StateArray& array : made.arrays()) {
    for (std::byte& byte : from.emplace_back(array.bytes)) byte = std::byte{value++};
    to.emplace_back(array.bytes);
  }
  const auto pointers = [](auto& arrays) {
    std::vector<std::byte*> all;
    for (auto& array : arrays) all.push_back(array.data());
    return all;
  };
  constexpr uint32_t kTokens = 75;
  std::vector<std::byte> fixed(made.fixed_bytes()), page(made.page_bytes());
  copy_state(made.fixed_pieces(), pointers(from), fixed.data(), StateDirection::kToBlob, std::memcpy);
  copy_state(made.fixed_pieces(), pointers(to), fixed.data(), StateDirection::kFromBlob, std::memcpy);
  for (uint32_t i = 0; i < state_pages(kTokens); ++i) {
    copy_state(made.page_pieces(i, kTokens), pointers(from), page.data(), StateDirection::kToBlob,
               std::memcpy);
    copy_state(made.page_pieces(i, kTokens), pointers(to), page.data(), StateDirection::kFromBlob,
               std::memcpy);
  }
  EXPECT_EQ(to[0], from[0]);
  EXPECT_EQ(to[3], from[3]);
  for (std::size_t i = 0; i < from[1].size(); ++i)
    EXPECT_EQ(to[1][i], i < kTokens * 8 ? from[1][i] : std::byte{0}) << i;
  for (std::size_t i = 0; i < from[2].size(); ++i)
    EXPECT_EQ(to[2][i], i < kTokens / 4 * 12 ? from[2][i] : std::byte{0}) << i;
}

TEST(StateLayout, NeighboursAreOneCopy) {
  const StateLayout made({{"a", 64, 0, 0}, {"b", 128, 0, 0}, {"c", 64, 0, 0}});
  std::vector<std::byte> arrays(1024), blob(made.fixed_bytes());
  const std::vector<std::byte*> pointers = {arrays.data(), arrays.data() + 64, arrays.data() + 512};
  std::vector<uint64_t> copies;
  copy_state(made.fixed_pieces(), pointers, blob.data(), StateDirection::kToBlob,
             [&](std::byte*, const std::byte*, uint64_t bytes) { copies.push_back(bytes); });
  EXPECT_THAT(copies, testing::ElementsAre(192, 64));
}

}  // namespace
}  // namespace strata::gpu_worker
