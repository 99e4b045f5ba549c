#include "services/simulation/bounds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "services/simulation/generate.h"

namespace strata::simulation {
namespace {

using residency::RoutingTrace;
using residency::TokenRole;

RoutingTrace one_layer(const std::vector<std::vector<uint16_t>>& tokens, uint32_t experts) {
  RoutingTrace trace{.layers = 1,
                     .experts = experts,
                     .used = static_cast<uint32_t>(tokens[0].size()),
                     .conversations = {{}}};
  for (const auto& picks : tokens) {
    auto& conversation = trace.conversations.front();
    conversation.tokens.push_back(0);
    conversation.domains.push_back(0);
    conversation.roles.push_back(TokenRole::kGenerated);
    conversation.picks.insert(conversation.picks.end(), picks.begin(), picks.end());
  }
  return trace;
}

// The best that any sequence of loads on a miss can reach, by trying all: sets of experts as bits.
uint32_t best_by_trying(const std::vector<std::vector<uint16_t>>& tokens, std::size_t at, uint32_t held,
                        uint32_t slots, uint32_t experts) {
  if (at == tokens.size()) return 0;
  uint32_t used = 0;
  for (const uint16_t pick : tokens[at]) used |= 1U << pick;
  const uint32_t may_hold = held | used;
  uint32_t best = 0;
  for (uint32_t next = 0; next < 1U << experts; ++next) {
    if ((next & ~may_hold) != 0 || static_cast<uint32_t>(std::popcount(next)) > slots) continue;
    best = std::max(best, best_by_trying(tokens, at + 1, next, slots, experts));
  }
  return best + static_cast<uint32_t>(std::popcount(held & used));
}

TEST(BoundsTest, BeladysRuleIsTheBestOfAllThatLoadOnAMiss) {
  constexpr uint32_t kExperts = 5, kTokens = 6;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto spec = parse_generate_spec("layers=1,experts=5,used=2,tokens=6,prompt=0,skew=0.5,seed=" +
                                          std::to_string(seed));
    const RoutingTrace trace = generate(*spec);
    std::vector<std::vector<uint16_t>> tokens;
    for (uint32_t token = 0; token < kTokens; ++token) {
      const auto picks = trace.picks(trace.conversations[0], token, 0);
      tokens.emplace_back(picks.begin(), picks.end());
    }
    for (uint32_t slots = 1; slots <= 3; ++slots) {
      uint32_t best = 0;
      for (uint32_t first = 0; first < 1U << kExperts; ++first) {
        if (static_cast<uint32_t>(std::popcount(first)) == slots)
          best = std::max(best, best_by_trying(tokens, 0, first, slots, kExperts));
      }
      EXPECT_DOUBLE_EQ(belady_hit_rate(trace, trace.conversations[0], slots), best / 12.0)
          << seed << " " << slots;
    }
  }
}

TEST(BoundsTest, TheOracleHoldsWhatIsUsedMost) {
  const RoutingTrace trace = one_layer({{0, 1}, {0, 2}, {0, 1}, {3, 1}}, 4);
  EXPECT_DOUBLE_EQ(oracle_hit_rate(trace, trace.conversations[0], 1), 3 / 8.0);
  EXPECT_DOUBLE_EQ(oracle_hit_rate(trace, trace.conversations[0], 2), 6 / 8.0);
  EXPECT_DOUBLE_EQ(oracle_hit_rate(trace, trace.conversations[0], 4), 1);
}

TEST(BoundsTest, OnlyGeneratedTokensCount) {
  RoutingTrace trace = one_layer({{0}, {1}, {1}}, 4);
  trace.conversations[0].roles = {TokenRole::kPrompt, TokenRole::kGenerated, TokenRole::kGenerated};
  EXPECT_DOUBLE_EQ(oracle_hit_rate(trace, trace.conversations[0], 1), 1);
  EXPECT_DOUBLE_EQ(belady_hit_rate(trace, trace.conversations[0], 1), 1);
  EXPECT_DOUBLE_EQ(foresight_hit_rate(trace, trace.conversations[0], {.slots = 1}), 1);
  trace.conversations[0].roles.assign(3, TokenRole::kPrompt);
  EXPECT_EQ(oracle_hit_rate(trace, trace.conversations[0], 1), 0);
  EXPECT_EQ(belady_hit_rate(trace, trace.conversations[0], 1), 0);
  EXPECT_EQ(foresight_hit_rate(trace, trace.conversations[0], {.slots = 1}), 0);
}

TEST(BoundsTest, ForesightWithoutExchangesIsAFixedPlacement) {
  const RoutingTrace trace = generate(*parse_generate_spec("tokens=200,seed=3"));
  ReplayOptions options{.slots = 128, .limits = {.exchanges_per_window = 0}};
  const double fixed = foresight_hit_rate(trace, trace.conversations[0], options);
  EXPECT_LE(fixed, oracle_hit_rate(trace, trace.conversations[0], 128));
  options.limits.exchanges_per_window = 4;
  EXPECT_GT(foresight_hit_rate(trace, trace.conversations[0], options), fixed + 0.05);
}

}  // namespace
}  // namespace strata::simulation
