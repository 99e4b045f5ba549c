#include "gateway/conversations/token_tree.h"

#include <gmock/gmock.h>

#include <limits>
#include <numeric>

namespace strata::gateway {
namespace {

using Mark = TokenTree::Mark;
using testing::ElementsAre;
using testing::IsEmpty;

struct Walked {
  std::vector<std::pair<uint32_t, TokenTree::Handle>> states;  // depth, handle
  TokenTree::Found found;
};

Walked walk(const TokenTree& tree, const std::vector<int32_t>& tokens) {
  Walked walked;
  walked.found = tree.walk(tokens, [&](const TokenTree::Reached& reached) {
    for (const auto handle : reached.states) walked.states.emplace_back(reached.depth, handle);
  });
  return walked;
}

TEST(TokenTree, FindsEveryMarkOnTheWayAndSaysWhereTheWayEnds) {
  TokenTree tree;
  tree.mark(std::vector{1, 2, 3, 4}, Mark::kState, 10);
  tree.mark(std::vector{1, 2}, Mark::kState, 11);
  tree.mark(std::vector{1, 2, 9}, Mark::kState, 12);

  Walked walked = walk(tree, {1, 2, 3, 4, 5});
  EXPECT_THAT(walked.states, ElementsAre(std::pair(2, 11), std::pair(4, 10)));
  EXPECT_EQ(walked.found.common_tokens, 4u);
  EXPECT_FALSE(walked.found.continues);

  walked = walk(tree, {1, 2, 3, 7});
  EXPECT_EQ(walked.found.common_tokens, 3u);
  ASSERT_TRUE(walked.found.continues) << "with 4 where 7 was asked for";
  EXPECT_EQ(tree.some_handle(walked.found.below), 10u);

  walked = walk(tree, {1, 2, 7});
  EXPECT_EQ(walked.found.common_tokens, 2u);
  EXPECT_TRUE(walked.found.continues);

  walked = walk(tree, {5});
  EXPECT_THAT(walked.states, IsEmpty());
  EXPECT_EQ(walked.found.common_tokens, 0u);
  EXPECT_EQ(walk(tree, {}).found.common_tokens, 0u);
}

TEST(TokenTree, StoresWhatIsSharedOnce) {
  TokenTree tree;
  std::vector<int32_t> root(1000);
  std::iota(root.begin(), root.end(), 0);
  for (int32_t chat = 0; chat < 100; ++chat) {
    std::vector<int32_t> tokens = root;
    tokens.insert(tokens.end(), {5000 + chat, 1, 2});
    tree.mark(tokens, Mark::kState, static_cast<TokenTree::Handle>(chat));
  }
  EXPECT_EQ(tree.token_count(), 1000u + 100 * 3);
  EXPECT_EQ(tree.node_count(), 101u);
}

TEST(TokenTree, KeepsNothingThatNoMarkNeeds) {
  TokenTree tree;
  const auto shared = tree.mark(std::vector{1, 2, 3}, Mark::kState, 0);
  const auto left = tree.mark(std::vector{1, 2, 3, 4}, Mark::kState, 1);
  const auto right = tree.mark(std::vector{1, 2, 5, 6}, Mark::kState, 2);
  EXPECT_EQ(tree.token_count(), 6u);

  tree.unmark(shared, Mark::kState, 0);
  EXPECT_EQ(tree.node_count(), 3u) << "the joint behind 1 2 stays, the one behind 3 goes";
  EXPECT_THAT(tree.path(left), ElementsAre(1, 2, 3, 4));
  tree.unmark(right, Mark::kState, 2);
  EXPECT_EQ(tree.node_count(), 1u);
  EXPECT_EQ(tree.token_count(), 4u);
  EXPECT_EQ(walk(tree, {1, 2, 5}).found.common_tokens, 2u);
  tree.unmark(left, Mark::kState, 1);
  EXPECT_TRUE(tree.empty());
  EXPECT_EQ(tree.node_count(), 0u);
  EXPECT_EQ(tree.token_count(), 0u);
}

TEST(TokenTree, ATailIsKnownAndNoState) {
  TokenTree tree;
  const auto tail = tree.mark(std::vector{1, 2, 3}, Mark::kTail, 4);
  Walked walked = walk(tree, {1, 2, 3, 4});
  EXPECT_THAT(walked.states, IsEmpty());
  EXPECT_EQ(walked.found.common_tokens, 3u);
  walked = walk(tree, {1, 8});
  EXPECT_EQ(tree.some_handle(walked.found.below), 4u);
  tree.unmark(tail, Mark::kTail, 4);
  EXPECT_TRUE(tree.empty());
}

TEST(TokenTree, SeveralMarksAtOnePlaceComeAndGoOneByOne) {
  TokenTree tree;
  const std::vector<int32_t> tokens = {7};
  const auto node = tree.mark(tokens, Mark::kState, 0);
  EXPECT_EQ(tree.mark(tokens, Mark::kState, 1), node);
  EXPECT_EQ(tree.mark(tokens, Mark::kTail, 2), node);
  tree.unmark(node, Mark::kState, 0);
  EXPECT_THAT(walk(tree, tokens).states, ElementsAre(std::pair(1, 1)));
  tree.unmark(node, Mark::kState, 1);
  EXPECT_THAT(walk(tree, tokens).states, IsEmpty());
  EXPECT_EQ(walk(tree, tokens).found.common_tokens, 1u);
  tree.unmark(node, Mark::kTail, 2);
  EXPECT_TRUE(tree.empty());
}

// Every length around the block in which tokens are compared, with the difference at every place.
TEST(TokenTree, ComparesExactlyAtEveryLength) {
  for (const int32_t size : {1, 2, 31, 32, 33, 63, 64, 65, 97}) {
    std::vector<int32_t> tokens(static_cast<std::size_t>(size));
    std::iota(tokens.begin(), tokens.end(), std::numeric_limits<int32_t>::min());
    TokenTree tree;
    tree.mark(tokens, Mark::kState, 0);
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      std::vector<int32_t> other = tokens;
      other[at] ^= 1 << 20;
      EXPECT_EQ(walk(tree, other).found.common_tokens, at) << size;
    }
    EXPECT_EQ(walk(tree, tokens).found.common_tokens, tokens.size());
  }
}

}  // namespace
}  // namespace strata::gateway
