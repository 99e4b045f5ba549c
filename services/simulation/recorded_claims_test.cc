// What docs/residency.md says of the default policy on the ten recorded conversations of the demo model: each
// is judged on a profile of the nine others, with at most one exchange per two layers and window.
#include <gtest/gtest.h>

#include <algorithm>

#include "services/residency/policy_topic.h"
#include "services/residency/trace_profile.h"
#include "services/simulation/bounds.h"
#include "services/simulation/claims.h"
#include "services/simulation/simulate.h"

namespace strata::simulation {
namespace {

using residency::RoutingTrace;
using residency::TopicTuning;

const NamedTrace& recorded() {
  static const NamedTrace traces = [] {
    auto read = read_trace_folder(std::string(STRATA_SOURCE_DIR) + "/models/traces", 0);
    EXPECT_TRUE(read.has_value()) << read.error().message();
    return std::move(*read);
  }();
  return traces;
}

constexpr uint32_t kSlots[] = {51, 128, 256};  // 10, 25 and 50 % of 512
constexpr double kOfOracle[] = {1, 1, 0.98};   // what the mean over the conversations must reach
constexpr double kLeastOfOracle = 0.85;        // and each of them
constexpr double kLongTokens = 32;             // experts.decay_tokens

ReplayOptions replay_options(uint32_t slots) {
  return {.slots = slots, .limits = {.exchanges_per_window = recorded().trace.layers / 2.0}};
}

class RecordedClaimsTest : public testing::TestWithParam<uint32_t> {};

TEST_P(RecordedClaimsTest, TheDefaultPolicyKeepsUpWithTheOracleAndBeatsTheSimpleOnes) {
  SimulateOptions options;
  for (const uint32_t slots : kSlots) options.budgets.push_back({std::to_string(slots), slots});
  options.replay = replay_options(0);
  options.replay.landing_windows = GetParam();
  const auto rows = simulate(recorded(), options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  for (std::size_t budget = 0; budget < std::size(kSlots); ++budget) {
    std::vector<Row> of_budget;
    std::ranges::copy_if(*rows, std::back_inserter(of_budget),
                         [&](const Row& row) { return row.budget.slots == kSlots[budget]; });
    const Row& chosen = *std::ranges::find(of_budget, "topic", &Row::policy);
    EXPECT_GE(chosen.hit_rate(), kOfOracle[budget] * chosen.oracle()) << kSlots[budget];
    EXPECT_GE(chosen.least_of_oracle(), kLeastOfOracle) << kSlots[budget];
    EXPECT_LT(chosen.hit_rate(), chosen.belady());
    for (const Row& other : of_budget) {
      if (&other == &chosen) continue;
      EXPECT_GT(chosen.hit_rate(), other.hit_rate() + 0.005) << other.policy;
    }
  }
}

// Windows that a copy takes beyond the boundary where it begins; 2 in a cluster: Retire takes effect at the
// second boundary behind the look, Land at the one after it.
INSTANTIATE_TEST_SUITE_P(Landing, RecordedClaimsTest, testing::Values(0, 1, 2));

TEST(RecordedStartTest, AProfileIsABetterStartThanNone) {
  SimulateOptions options;
  options.policies = {"static", "lfu-decay", "topic"};
  options.budgets = {{"128", 128}};
  options.replay = replay_options(0);
  const auto with = simulate(recorded(), options);
  options.knowledge = Knowledge::kNothing;
  const auto without = simulate(recorded(), options);
  ASSERT_TRUE(with.has_value() && without.has_value());
  for (std::size_t policy = 0; policy < options.policies.size(); ++policy) {
    EXPECT_GT((*with)[policy].hit_rate(), (*without)[policy].hit_rate()) << options.policies[policy];
  }
}

RoutingTrace without(std::vector<std::size_t> left_out) {
  RoutingTrace trace = recorded().trace;
  std::ranges::sort(left_out, std::greater());
  for (const std::size_t i : left_out)
    trace.conversations.erase(trace.conversations.begin() + static_cast<std::ptrdiff_t>(i));
  return trace;
}

Replay make_replay(uint32_t slots, const residency::Profile& profile, const TopicTuning& tuning,
                   double long_tokens) {
  const RoutingTrace& trace = recorded().trace;
  const residency::PolicyOptions options{.shape = {trace.layers, trace.experts},
                                         .slots = slots,
                                         .decay_tokens = long_tokens,
                                         .profile = profile.shares(),
                                         .topics = profile.topics};
  return Replay(trace, residency::make_topic_policy(options, tuning), replay_options(slots));
}

struct Candidate {
  TopicTuning tuning;
  double long_tokens = 0;
};

// Around the constants in use, which are among them.
std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
  for (const double long_tokens : {kLongTokens, 96.0}) {
    for (const double topic_tokens : {4.0, 12.0}) {
      for (const double margin : {0.1, 0.3}) {
        TopicTuning tuning;
        tuning.topic_tokens = topic_tokens;
        tuning.margin = margin;
        all.push_back({tuning, long_tokens});
      }
    }
  }
  return all;
}

// Hit rate of a conversation with each candidate, of its oracle's.
std::vector<double> of_oracle(std::size_t conversation, const residency::Profile& profile, uint32_t slots) {
  const Conversation& judged = recorded().trace.conversations[conversation];
  std::vector<double> rates;
  for (const Candidate& candidate : candidates()) {
    Replay replay = make_replay(slots, profile, candidate.tuning, candidate.long_tokens);
    replay.run(judged);
    rates.push_back(replay.result().decode_rate() / oracle_hit_rate(recorded().trace, judged, slots));
  }
  return rates;
}

// Nested: the constants for a conversation are those that serve the nine others best, each of which is judged
// on a profile of the eight that are left.
TEST(RecordedTuningTest, ConstantsChosenWithoutTheConversationKeepThePromises) {
  const std::size_t conversations = recorded().trace.conversations.size();
  double sum[std::size(kSlots)] = {};
  std::vector<uint32_t> chosen_how_often(candidates().size());
  for (std::size_t judged = 0; judged < conversations; ++judged) {
    std::vector<double> score(candidates().size());
    for (std::size_t other = 0; other < conversations; ++other) {
      if (other == judged) continue;
      const auto profile = residency::profile_of(without({judged, other}));
      for (const uint32_t slots : kSlots) {
        const auto rates = of_oracle(other, profile, slots);
        std::ranges::transform(score, rates, score.begin(), std::plus());
      }
    }
    const auto best = static_cast<std::size_t>(std::ranges::max_element(score) - score.begin());
    ++chosen_how_often[best];
    const auto profile = residency::profile_of(recorded().trace, judged);
    for (std::size_t budget = 0; budget < std::size(kSlots); ++budget) {
      const double rate = of_oracle(judged, profile, kSlots[budget])[best];
      EXPECT_GE(rate, kLeastOfOracle) << recorded().names[judged] << " " << kSlots[budget];
      sum[budget] += rate / static_cast<double>(conversations);
    }
  }
  for (std::size_t budget = 0; budget < std::size(kSlots); ++budget) {
    fmt::print("{} slots: {:.3f} of the oracle\n", kSlots[budget], sum[budget]);
    EXPECT_GE(sum[budget], kOfOracle[budget]);
  }
  fmt::print("chosen: {}\n", fmt::join(chosen_how_often, " "));
}

// One conversation's arena, then another one of other topics: what a topic switch is in practice.
TEST(RecordedRecoveryTest, RecoversWithin64TokensOfAnotherConversation) {
  const RoutingTrace& trace = recorded().trace;
  const std::size_t conversations = trace.conversations.size();
  for (const uint32_t slots : kSlots) {
    double mean = 0;
    for (std::size_t first = 0; first < conversations; ++first) {
      const std::size_t second = (first + 1) % conversations;
      const auto profile = residency::profile_of(without({first, second}));
      Replay replay = make_replay(slots, profile, {}, kLongTokens);
      replay.run(trace.conversations[first]);
      const std::size_t before = replay.hits_of_tokens().size();
      replay.run(trace.conversations[second]);
      const auto hits = std::span(replay.hits_of_tokens()).subspan(before);
      const double steady = rate_of(trace, hits.subspan(std::min<std::size_t>(64, hits.size() / 2)));
      const std::size_t tokens = tokens_until(trace, hits, 0.9 * steady);
      EXPECT_LE(tokens, 64U) << recorded().names[first] << " then " << recorded().names[second] << ", "
                             << slots;
      mean += static_cast<double>(tokens) / static_cast<double>(conversations);
    }
    fmt::print("{} slots: back after {:.1f} tokens in the mean\n", slots, mean);
  }
}

}  // namespace
}  // namespace strata::simulation
