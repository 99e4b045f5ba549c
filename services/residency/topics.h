#pragma once
// What conversations are about, as far as routing shows it. A topic is a group of stretches of traffic that
// used about the same experts. Conversations come back to topics, and a handful of tokens tell which one it
// is: then a topic knows the experts of the next hundred tokens, of which those few used only a part.

#include <cstdint>
#include <span>
#include <vector>

namespace strata::residency {

struct Topic {
  uint64_t tokens = 0;
  std::vector<uint32_t> counts;  // (layers, experts): uses in these tokens
};

// Groups traffic into topics while it goes by: every kChunkTokens tokens become a topic of their own, and
// when there are more than kTopicsMax, the two that are closest become one. Distance: of the square roots of
// the uses per token (Hellinger), times the square root of n m / (n + m) of their tokens, so that large
// topics do not swallow each other.
//
// Measured on ten recorded conversations, each with topics from the nine others
// (docs/decisions/010-residency-constants.md): 8 topics lose 0.2 points of hit rate against 16, 32 gain 0.1;
// chunks of 16 tokens lose 0.2, of 64 tokens gain less than 0.1 but recognise a new topic 10 tokens later.
class TopicLearner {
 public:
  static constexpr uint32_t kTopicsMax = 16;
  static constexpr uint64_t kChunkTokens = 32;
  // A topic of more tokens is halved: what it was long ago must not hold it for ever.
  static constexpr uint64_t kTopicTokensMax = uint64_t{1} << 16;

  // experts: layers * experts. Takes at most kTopicsMax of the topics, those with most tokens.
  TopicLearner(std::size_t experts, std::vector<Topic> topics);

  // Uses of so many tokens, (layers, experts). Returns the indices of topics that are new or have changed.
  // Work: a pass over the uses; once a chunk, one over two topics for each of the others.
  std::vector<std::size_t> add(std::span<const uint32_t> uses, uint64_t tokens);

  const std::vector<Topic>& topics() const { return topics_; }

 private:
  std::vector<std::size_t> absorb(Topic chunk);
  void put(std::size_t index, Topic topic);

  std::vector<Topic> topics_;
  std::vector<std::vector<float>> roots_;      // of each topic: square roots of uses per token
  std::vector<std::vector<double>> distance_;  // (topics, topics), of each pair both ways
  Topic chunk_;                                // not yet complete
};

}  // namespace strata::residency
