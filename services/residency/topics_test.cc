#include "services/residency/topics.h"

#include <gmock/gmock.h>

#include <numeric>

namespace strata::residency {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kExperts = 32;

// Traffic of one subject: it uses experts first to first + 3, each once per token.
std::vector<uint32_t> uses_of(std::size_t first, uint32_t tokens) {
  std::vector<uint32_t> uses(kExperts);
  for (std::size_t expert = first; expert < first + 4; ++expert) uses[expert % kExperts] = tokens;
  return uses;
}

TEST(TopicsTest, AChunkBecomesATopicWhenItIsComplete) {
  TopicLearner learner(kExperts, {});
  EXPECT_THAT(learner.add(uses_of(0, 20), 20), IsEmpty());
  EXPECT_THAT(learner.topics(), IsEmpty());
  EXPECT_THAT(learner.add(uses_of(0, 12), 12), ElementsAre(0));
  ASSERT_EQ(learner.topics().size(), 1U);
  EXPECT_EQ(learner.topics()[0].tokens, 32U);
  EXPECT_EQ(learner.topics()[0].counts, uses_of(0, 32));
  EXPECT_THAT(learner.add(uses_of(8, 512), 512), ElementsAre(1)) << "a prompt chunk is one, however long";
}

TEST(TopicsTest, TrafficOfOneSubjectBecomesOneTopic) {
  TopicLearner learner(kExperts, {});
  // Three subjects in turn, many more chunks than topics.
  for (uint32_t chunk = 0; chunk < 300; ++chunk) learner.add(uses_of(chunk % 3 * 10, 64), 64);
  ASSERT_EQ(learner.topics().size(), TopicLearner::kTopicsMax);
  uint64_t tokens = 0;
  for (const Topic& topic : learner.topics()) {
    tokens += topic.tokens;
    // Nothing is mixed: what a topic uses at all it uses with every token.
    for (const uint32_t count : topic.counts) EXPECT_TRUE(count == 0 || count == topic.tokens);
    EXPECT_EQ(std::accumulate(topic.counts.begin(), topic.counts.end(), uint64_t{0}), 4 * topic.tokens);
  }
  EXPECT_EQ(tokens, 300U * 64) << "nothing is lost";
}

TEST(TopicsTest, ANewSubjectFindsRoomWhenTheOldOnesFillIt) {
  TopicLearner learner(kExperts, {});
  for (uint32_t chunk = 0; chunk < 100; ++chunk) learner.add(uses_of(chunk % 2 * 10, 64), 64);
  const auto changed = learner.add(uses_of(20, 64), 64);
  ASSERT_EQ(changed.size(), 2U) << "two old ones join, the new one takes the place";
  EXPECT_EQ(learner.topics()[changed[1]].counts, uses_of(20, 64));
  EXPECT_EQ(learner.topics().size(), TopicLearner::kTopicsMax);
}

TEST(TopicsTest, ALargeTopicIsHalved) {
  constexpr uint64_t kMax = TopicLearner::kTopicTokensMax;
  std::vector<Topic> topics(TopicLearner::kTopicsMax);
  for (std::size_t i = 0; i < topics.size(); ++i)
    topics[i] = {kMax, uses_of(2 * i, static_cast<uint32_t>(kMax))};
  TopicLearner learner(kExperts, topics);
  const auto changed = learner.add(uses_of(4, 64), 64);
  ASSERT_THAT(changed, ElementsAre(2));
  EXPECT_EQ(learner.topics()[2].tokens, (kMax + 64) / 2);
  EXPECT_EQ(learner.topics()[2].counts[4], (kMax + 64) / 2);
}

TEST(TopicsTest, BeginsWithTheLargestOfWhatItIsGiven) {
  std::vector<Topic> topics;
  for (uint64_t i = 0; i < 40; ++i) topics.push_back({i, uses_of(i, 1)});
  TopicLearner learner(kExperts, topics);
  ASSERT_EQ(learner.topics().size(), TopicLearner::kTopicsMax);
  EXPECT_EQ(learner.topics().front().tokens, 39U);
  EXPECT_EQ(learner.topics().back().tokens, 24U);
}

}  // namespace
}  // namespace strata::residency
