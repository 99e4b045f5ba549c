#include "services/residency/topics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace strata::residency {
namespace {

std::vector<float> roots_of(const Topic& topic) {
  std::vector<float> roots(topic.counts.size());
  const float per_token = 1 / static_cast<float>(topic.tokens);
  for (std::size_t i = 0; i < roots.size(); ++i)
    roots[i] = std::sqrt(static_cast<float>(topic.counts[i]) * per_token);
  return roots;
}

// Sum of squared differences in eight lanes, so that it is vectorized and still the same on every machine.
double squared_difference(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 8;
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float difference = a[i + lane] - b[i + lane];
      lanes[lane] += difference * difference;
    }
  }
  double sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

double size_factor(const Topic& a, const Topic& b) {
  const auto n = static_cast<double>(a.tokens), m = static_cast<double>(b.tokens);
  return std::sqrt(n * m / (n + m));
}

Topic merged(Topic a, const Topic& b) {
  a.tokens += b.tokens;
  for (std::size_t i = 0; i < a.counts.size(); ++i) a.counts[i] += b.counts[i];
  if (a.tokens > TopicLearner::kTopicTokensMax) {
    a.tokens /= 2;
    for (uint32_t& count : a.counts) count /= 2;
  }
  return a;
}

}  // namespace

TopicLearner::TopicLearner(std::size_t experts, std::vector<Topic> topics) {
  chunk_.counts.resize(experts);
  std::ranges::stable_sort(topics, std::greater(), &Topic::tokens);
  if (topics.size() > kTopicsMax) topics.resize(kTopicsMax);
  for (Topic& topic : topics) {
    if (topic.tokens > 0) put(topics_.size(), std::move(topic));
  }
}

void TopicLearner::put(std::size_t index, Topic topic) {
  if (index == topics_.size()) {
    topics_.emplace_back();
    roots_.emplace_back();
    for (auto& row : distance_) row.emplace_back();
    distance_.emplace_back(topics_.size());
  }
  topics_[index] = std::move(topic);
  roots_[index] = roots_of(topics_[index]);
  for (std::size_t other = 0; other < topics_.size(); ++other) {
    distance_[index][other] = distance_[other][index] =
        other == index
            ? std::numeric_limits<double>::infinity()
            : squared_difference(roots_[index], roots_[other]) * size_factor(topics_[index], topics_[other]);
  }
}

std::vector<std::size_t> TopicLearner::add(std::span<const uint32_t> uses, uint64_t tokens) {
  for (std::size_t i = 0; i < uses.size(); ++i) chunk_.counts[i] += uses[i];
  chunk_.tokens += tokens;
  if (chunk_.tokens < kChunkTokens) return {};
  return absorb(std::exchange(chunk_, Topic{.tokens = 0, .counts = std::vector<uint32_t>(uses.size())}));
}

std::vector<std::size_t> TopicLearner::absorb(Topic chunk) {
  if (topics_.size() < kTopicsMax) {
    put(topics_.size(), std::move(chunk));
    return {topics_.size() - 1};
  }
  // The closest two of the topics and the chunk.
  std::size_t first = 0, second = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < topics_.size(); ++i) {
    for (std::size_t j = i + 1; j < topics_.size(); ++j) {
      if (distance_[i][j] < least) std::tie(first, second, least) = std::tuple(i, j, distance_[i][j]);
    }
  }
  const std::vector<float> roots = roots_of(chunk);
  bool joins = false;
  for (std::size_t i = 0; i < topics_.size(); ++i) {
    const double distance = squared_difference(roots, roots_[i]) * size_factor(chunk, topics_[i]);
    if (distance < least) std::tie(first, least, joins) = std::tuple(i, distance, true);
  }
  if (joins) {
    put(first, merged(topics_[first], chunk));
    return {first};
  }
  put(first, merged(topics_[first], topics_[second]));
  put(second, std::move(chunk));
  return {first, second};
}

}  // namespace strata::residency
