#include "cache-manager/usage_reader.h"

#include <gtest/gtest.h>

#include "services/base/check.h"

namespace strata::cache_manager {
namespace {

class UsageReaderTest : public testing::Test {
 protected:
  static shm::UsageBoard make() {
    auto board =
        shm::UsageBoard::create(shm::segment_name("unittest", "reader", shm::random_instance_id()), 2, 2);
    CHECK(board.has_value(), "{}", board.error().message());
    return std::move(*board);
  }
  static std::vector<uint32_t> list(std::span<const uint32_t> uses) { return {uses.begin(), uses.end()}; }

  shm::UsageBoard board_ = make();
  UsageReader reader_;
};

TEST_F(UsageReaderTest, GivesWhatIsNewForDecodeAndPrefillApart) {
  board_.decode(0, 0) = 9;  // before the first look
  board_.window_finished({.prompt = 1, .generated = 1});
  reader_.begin(board_);
  EXPECT_EQ(reader_.take(board_).windows, 0u);

  board_.decode(1, 0) += 2;
  board_.prefill(0, 1) += 5;
  board_.window_finished({.prompt = 3, .generated = 2});
  board_.window_finished({.prompt = 0, .generated = 1});
  UsageReader::Delta delta = reader_.take(board_);
  EXPECT_EQ(delta.windows, 2u);
  EXPECT_EQ(delta.usage.decode_tokens, 3u);
  EXPECT_EQ(delta.usage.prefill_tokens, 3u);
  EXPECT_EQ(list(delta.usage.decode_uses), (std::vector<uint32_t>{0, 0, 2, 0}));
  EXPECT_EQ(list(delta.usage.prefill_uses), (std::vector<uint32_t>{0, 5, 0, 0}));

  board_.decode(0, 0) += 1;
  board_.window_finished({.prompt = 0, .generated = 1});
  delta = reader_.take(board_);
  EXPECT_EQ(list(delta.usage.decode_uses), (std::vector<uint32_t>{1, 0, 0, 0}));
  EXPECT_TRUE(delta.usage.prefill_uses.empty()) << "no prompt tokens";
}

TEST_F(UsageReaderTest, AnUnfinishedWindowWaits) {
  reader_.begin(board_);
  board_.prefill(0, 0) += 4;
  EXPECT_EQ(reader_.take(board_).windows, 0u);
  board_.window_finished({.prompt = 2, .generated = 0});
  EXPECT_EQ(list(reader_.take(board_).usage.prefill_uses), (std::vector<uint32_t>{4, 0, 0, 0}));
}

}  // namespace
}  // namespace strata::cache_manager
