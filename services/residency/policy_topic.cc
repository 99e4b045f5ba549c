#include "services/residency/policy_topic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "services/residency/topics.h"
#include "services/residency/worth_policy.h"

namespace strata::residency {
namespace {

// Uses per token that no estimate is below, as a share of the mean: a topic that never saw an expert has not
// proved that it never will.
constexpr float kRateMin = 0.01F;
// A topic's uses per token are mixed with the mean over all topics as if that were so many tokens of it.
constexpr float kMeanTokens = 16;

class TopicPolicy final : public WorthPolicy {
 public:
  TopicPolicy(const PolicyOptions& options, const TopicTuning& tuning)
      : WorthPolicy(options, {}, tuning.stay_tokens),
        tuning_(tuning),
        long_tokens_(options.decay_tokens),
        profile_(options.profile),
        short_(worth_.size()),
        long_(worth_.size()),
        learner_(worth_.size(), options.topics),
        rates_(TopicLearner::kTopicsMax, std::vector<float>(worth_.size())),
        log_rates_(worth_.size() * TopicLearner::kTopicsMax),
        evidence_(TopicLearner::kTopicsMax) {
    for (const Topic& topic : learner_.topics()) count(topic.counts, topic.tokens);
    for (std::size_t topic = 0; topic < learner_.topics().size(); ++topic) take_in(topic);
    estimate();
  }
  std::string_view name() const override { return "topic"; }
  std::span<const Topic> topics() const override { return learner_.topics(); }

 private:
  // How long a memory or the evidence is at work, in tokens.
  struct Weights {
    double memory_tokens = 0, evidence_tokens = 0;
  };

  void learn(const Usage& usage) override {
    const auto read = static_cast<double>(usage.prefill_tokens);
    const auto generated = static_cast<double>(usage.decode_tokens);
    take(usage.prefill_uses, usage.prefill_tokens,
         {std::min(read * tuning_.prefill_part, tuning_.prefill_tokens_max), read});
    take(usage.decode_uses, usage.decode_tokens, {generated, generated});
    estimate();
  }

  void take(std::span<const uint32_t> uses, uint64_t tokens, const Weights& weights) {
    if (uses.empty() || tokens == 0) return;
    count(uses, tokens);
    remember(short_, tuning_.short_tokens, uses, tokens, weights.memory_tokens);
    remember(long_, long_tokens_, uses, tokens, weights.memory_tokens);
    weigh(uses, weights.evidence_tokens);
    for (const std::size_t topic : learner_.add(uses, tokens)) {
      take_in(topic);
      weigh_anew(topic);
    }
  }

  // How many uses of an expert a token makes in the mean.
  void count(std::span<const uint32_t> uses, uint64_t tokens) {
    const uint64_t sum = std::accumulate(uses.begin(), uses.end(), uint64_t{0});
    uses_seen_ += static_cast<double>(sum);
    tokens_seen_ += static_cast<double>(tokens);
  }
  double mean_rate() const {
    return tokens_seen_ == 0 ? 0 : uses_seen_ / tokens_seen_ / static_cast<double>(worth_.size());
  }

  // The memory moves towards these tokens' uses per token.
  static void remember(std::vector<float>& memory, double half_life, std::span<const uint32_t> uses,
                       uint64_t tokens, double weight_tokens) {
    const auto keep = static_cast<float>(std::exp2(-weight_tokens / half_life));
    const float per_use = (1 - keep) / static_cast<float>(tokens);
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = memory[i] * keep + per_use * static_cast<float>(uses[i]);
  }

  // Adds what these tokens say, as if their uses were spread evenly over them.
  void weigh(std::span<const uint32_t> uses, double evidence_tokens) {
    const std::size_t topics = learner_.topics().size();
    std::vector<double> log_likelihood(topics);
    double used = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i] == 0) continue;
      used += uses[i];
      const float* logs = &log_rates_[i * TopicLearner::kTopicsMax];
      for (std::size_t topic = 0; topic < topics; ++topic)
        log_likelihood[topic] += uses[i] * double{logs[topic]};
    }
    if (used == 0) return;
    const double keep = std::exp2(-evidence_tokens / tuning_.topic_tokens);
    const double tokens_at_work = (1 - keep) * memory_of_evidence();
    for (std::size_t topic = 0; topic < topics; ++topic)
      evidence_[topic] = evidence_[topic] * keep + tokens_at_work * log_likelihood[topic] / used;
  }

  // Sum over the tokens of an endless past of what is left of each.
  double memory_of_evidence() const { return 1 / (1 - std::exp2(-1 / tuning_.topic_tokens)); }

  // A topic that changed is weighed by what the short memory holds.
  void weigh_anew(std::size_t topic) {
    double log_likelihood = 0, used = 0;
    for (std::size_t i = 0; i < short_.size(); ++i) {
      log_likelihood += double{short_[i]} * double{log_rates_[i * TopicLearner::kTopicsMax + topic]};
      used += double{short_[i]};
    }
    evidence_[topic] = used == 0 ? 0 : memory_of_evidence() * log_likelihood / used;
  }

  // Uses per token of a topic, and their logarithms.
  void take_in(std::size_t index) {
    const Topic& topic = learner_.topics()[index];
    std::vector<float> all(worth_.size());
    float tokens = 0;
    for (const Topic& each : learner_.topics()) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += static_cast<float>(each.counts[i]);
      tokens += static_cast<float>(each.tokens);
    }
    const float mean_part = kMeanTokens / tokens;
    const float scale = 1 / (static_cast<float>(topic.tokens) + kMeanTokens);
    const auto least = kRateMin * static_cast<float>(mean_rate());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float rate = (static_cast<float>(topic.counts[i]) + mean_part * all[i]) * scale;
      rates_[index][i] = std::max(rate, least);
      log_rates_[i * TopicLearner::kTopicsMax + index] = std::log(std::max(rate, least));
    }
  }

  std::vector<double> topic_probabilities() const {
    const std::size_t topics = learner_.topics().size();
    std::vector<double> probabilities(topics);
    if (topics == 0) return probabilities;
    const double most =
        *std::max_element(evidence_.begin(), evidence_.begin() + static_cast<std::ptrdiff_t>(topics));
    double sum = 0;
    for (std::size_t topic = 0; topic < topics; ++topic)
      sum += probabilities[topic] = std::exp(tuning_.evidence * (evidence_[topic] - most));
    for (double& probability : probabilities) probability /= sum;
    return probabilities;
  }

  void estimate() {
    const auto short_part = static_cast<float>(tuning_.short_part);
    for (std::size_t i = 0; i < worth_.size(); ++i)
      estimate_[i] = short_part * short_[i] + (1 - short_part) * long_[i];
    constexpr double kNegligible = 1e-3;
    const auto probabilities = topic_probabilities();
    for (std::size_t topic = 0; topic < probabilities.size(); ++topic) {
      if (probabilities[topic] > kNegligible)
        add_scaled(rates_[topic], static_cast<float>(probabilities[topic]));
    }
    if (probabilities.empty() && !profile_.empty()) add_scaled(profile_, profile_scale());
    std::ranges::copy(estimate_, worth_.begin());
    set_margin({.ratio = 1, .difference = tuning_.margin * mean_rate()});
  }

  // A profile holds shares of a layer's uses; before the first token only its order counts.
  float profile_scale() const {
    return tokens_seen_ == 0 ? 1.0F
                             : static_cast<float>(tuning_.profile_weight * mean_rate() * shape_.experts);
  }

  void add_scaled(const std::vector<float>& rates, float scale) {
    for (std::size_t i = 0; i < estimate_.size(); ++i) estimate_[i] += scale * rates[i];
  }

  TopicTuning tuning_;
  double long_tokens_;
  std::vector<float> profile_;       // (layers, experts), or empty
  std::vector<float> short_, long_;  // (layers, experts): uses per token
  std::vector<float> estimate_ = std::vector<float>(worth_.size());
  TopicLearner learner_;
  std::vector<std::vector<float>> rates_;  // (topics; layers, experts): uses per token
  std::vector<float> log_rates_;           // (layers, experts, topics)
  std::vector<double> evidence_;  // (topics): decayed sum over tokens of the mean log rate of their uses
  double uses_seen_ = 0, tokens_seen_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_topic_policy(const PolicyOptions& options, const TopicTuning& tuning) {
  return std::make_unique<TopicPolicy>(options, tuning);
}

std::unique_ptr<Policy> make_topic_policy(const PolicyOptions& options) {
  return make_topic_policy(options, TopicTuning());
}

}  // namespace strata::residency
