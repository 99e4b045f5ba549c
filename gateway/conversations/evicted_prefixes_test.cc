#include "gateway/conversations/evicted_prefixes.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "gateway/conversations/prefix_hasher.h"

namespace strata::gateway {
namespace {

std::vector<int32_t> numbers(std::size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1000);
  return tokens;
}

TEST(PrefixHasher, GivesTheSameHashWhateverPositionsWereAskedForBefore) {
  const std::vector<int32_t> tokens = numbers(300);
  PrefixHasher all(tokens, 5);
  for (uint32_t position = 0; position <= tokens.size(); ++position) {
    const std::span<const int32_t> prefix(tokens.data(), position);
    EXPECT_EQ(all.at(position), PrefixHasher(prefix, 5).at(position)) << position;
  }
}

TEST(PrefixHasher, EveryTokenThePositionAndTheSeedCount) {
  const std::vector<int32_t> tokens = numbers(130);
  const uint64_t hash = PrefixHasher(tokens, 5).at(130);
  EXPECT_NE(hash, PrefixHasher(tokens, 6).at(130));
  EXPECT_NE(hash, PrefixHasher(tokens, 5).at(129));
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    std::vector<int32_t> other = tokens;
    ++other[at];
    EXPECT_NE(hash, PrefixHasher(other, 5).at(130)) << at;
  }
}

class EvictedPrefixesTest : public testing::Test {
 protected:
  void remember(uint32_t position, uint64_t seed = 1) {
    evicted_.remember(position, PrefixHasher(tokens_, seed).at(position));
  }
  uint32_t longest(uint32_t above, uint32_t up_to, uint64_t seed = 1) {
    return evicted_.longest(tokens_, seed, above, up_to);
  }

  std::vector<int32_t> tokens_ = numbers(500);
  EvictedPrefixes evicted_{3};
};

TEST_F(EvictedPrefixesTest, FindsTheLongestWithinBounds) {
  EXPECT_EQ(longest(0, 500), 0u);
  remember(100);
  remember(300);
  EXPECT_EQ(longest(0, 500), 300u);
  EXPECT_EQ(longest(0, 300), 300u);
  EXPECT_EQ(longest(0, 299), 100u);
  EXPECT_EQ(longest(100, 299), 0u);
  EXPECT_EQ(longest(99, 299), 100u);
  EXPECT_EQ(longest(300, 500), 0u);
  EXPECT_EQ(longest(0, 500, /*seed=*/2), 0u);
}

TEST_F(EvictedPrefixesTest, OtherTokensAreNoMatch) {
  remember(100);
  tokens_[99] = -1;
  EXPECT_EQ(longest(0, 500), 0u);
}

TEST_F(EvictedPrefixesTest, ForgetsTheOldestBeyondItsLimitAndCountsOneOnce) {
  for (const uint32_t position : {10, 20, 20, 10, 30}) remember(position);
  EXPECT_EQ(evicted_.size(), 3u);
  EXPECT_EQ(longest(0, 10), 10u);
  remember(40);
  EXPECT_EQ(evicted_.size(), 3u);
  EXPECT_EQ(longest(0, 10), 0u);
  EXPECT_EQ(longest(0, 20), 20u);
  EXPECT_EQ(longest(0, 500), 40u);
}

TEST(EvictedPrefixes, ALimitOfNothingRemembersNothing) {
  EvictedPrefixes none(0);
  none.remember(3, 7);
  EXPECT_EQ(none.size(), 0u);
}

}  // namespace
}  // namespace strata::gateway
