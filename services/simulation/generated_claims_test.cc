// What docs/residency.md says of the default policy on long generated traffic, and what a topic switch and a
// long prompt do to it.
#include <gmock/gmock.h>

#include "services/simulation/claims.h"
#include "services/simulation/generate.h"
#include "services/simulation/simulate.h"

namespace strata::simulation {
namespace {

using residency::RoutingTrace;
using residency::TokenRole;

RoutingTrace make(std::string_view text) { return generate(*parse_generate_spec(text)); }

std::vector<Row> simulated(std::string_view spec) {
  NamedTrace named{make(spec), {"generated"}};
  SimulateOptions options;
  for (const char* budget : {"10%", "25%", "50%"}) options.budgets.push_back(*parse_slot_budget(budget, 512));
  options.replay.limits.exchanges_per_window = 4;
  auto rows = simulate(named, options);
  EXPECT_TRUE(rows.has_value()) << rows.error().message();
  return std::move(*rows);
}

class GeneratedClaimsTest : public testing::TestWithParam<std::string> {};

TEST_P(GeneratedClaimsTest, TheDefaultPolicyBeatsTheSimpleOnesAndWhereTrafficDriftsTheOracle) {
  const auto rows = simulated(GetParam() + ",tokens=6000");
  const bool drifts = GetParam() == "drift" || GetParam() == "alternating";
  for (const Row& chosen : rows) {
    if (chosen.policy != "topic") continue;
    EXPECT_GT(chosen.hit_rate(), chosen.oracle() * (drifts ? 1.05 : 0.99)) << chosen.budget.text;
    for (const Row& other : rows) {
      const bool simple = other.policy == "static" || other.policy == "lru" || other.policy == "lfu";
      if (other.budget.text != chosen.budget.text || !simple) continue;
      EXPECT_GT(chosen.hit_rate(), other.hit_rate()) << chosen.budget.text << " " << other.policy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Traffic, GeneratedClaimsTest,
                         testing::Values("mild", "strong", "drift", "alternating"));

Replay default_replay(const RoutingTrace& trace, uint32_t slots) {
  auto policy = residency::make_policy(
      "topic", {.shape = {trace.layers, trace.experts}, .slots = slots, .decay_tokens = 32});
  return Replay(trace, std::move(*policy), {.slots = slots, .limits = {.exchanges_per_window = 4}});
}

TEST(GeneratedRecoveryTest, RecoversWithin64TokensOfATopicSwitch) {
  constexpr std::size_t kSwitch = 500;
  // Topics that were seen before, and such that were not: the fifth topic is new at each of the first five
  // switches, then all return.
  const RoutingTrace trace = make("topics=5,switch=500,tokens=10000,skew=1");
  for (const uint32_t slots : {51U, 128U, 256U}) {
    Replay replay = default_replay(trace, slots);
    replay.run(trace.conversations[0]);
    const std::span<const uint32_t> hits = replay.hits_of_tokens();
    for (std::size_t begin = kSwitch; begin < hits.size(); begin += kSwitch) {
      const double steady = rate_of(trace, hits.subspan(begin + kSwitch / 2, kSwitch / 2));
      EXPECT_LE(tokens_until(trace, hits.subspan(begin, kSwitch), 0.9 * steady), 64U)
          << slots << " slots, switch at " << begin;
    }
  }
}

// A conversation of one topic, with a prompt of 2048 tokens about another in its middle.
RoutingTrace with_scan(const RoutingTrace& conversation, const RoutingTrace& scan) {
  RoutingTrace trace = conversation;
  auto& into = trace.conversations[0];
  const std::size_t middle = into.tokens.size() / 2;
  const auto& from = scan.conversations[0];
  const auto insert = [](auto& to, std::size_t at, const auto& what, std::size_t count) {
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(at), what.begin(),
              what.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const std::size_t per_token = std::size_t{trace.layers} * trace.used, tokens = from.tokens.size();
  insert(into.tokens, middle, from.tokens, tokens);
  insert(into.domains, middle, from.domains, tokens);
  insert(into.roles, middle, std::vector<TokenRole>(tokens, TokenRole::kPrompt), tokens);
  insert(into.picks, middle * per_token, from.picks, tokens * per_token);
  return trace;
}

TEST(ScanTest, ALongPromptDoesNotFlushTheHotSet) {
  const RoutingTrace conversation = make("skew=1,tokens=2000,prompt=0,seed=5");
  const RoutingTrace trace = with_scan(conversation, make("skew=1,tokens=2048,prompt=0,seed=6"));
  for (const uint32_t slots : {51U, 128U, 256U}) {
    Replay replay = default_replay(trace, slots);
    replay.run(trace.conversations[0]);
    const std::span<const uint32_t> hits = replay.hits_of_tokens();
    const double before = rate_of(trace, hits.subspan(500, 500)),
                 after = rate_of(trace, hits.subspan(1000, 64));
    EXPECT_GT(after, 0.9 * before) << slots;
    EXPECT_GT(replay.result().prefill_uses, 0U);
  }
}

}  // namespace
}  // namespace strata::simulation
