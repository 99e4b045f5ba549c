#include "services/simulation/generate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace strata::simulation {
namespace {

using residency::RoutingTrace;
using residency::TokenRole;
using testing::HasSubstr;

RoutingTrace make(std::string_view text) {
  const auto spec = parse_generate_spec(text);
  EXPECT_TRUE(spec.has_value()) << spec.error().message();
  return generate(*spec);
}

// Share of a layer's uses in tokens begin to end that its `hottest` experts of these tokens carry.
double share_of_hottest(const RoutingTrace& trace, std::size_t begin, std::size_t end, std::size_t hottest) {
  std::vector<double> counts(trace.experts);
  for (std::size_t token = begin; token < end; ++token)
    for (const uint16_t expert : trace.picks(trace.conversations[0], token, 0)) ++counts[expert];
  std::ranges::sort(counts, std::greater());
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(hottest), 0.0) /
         std::accumulate(counts.begin(), counts.end(), 0.0);
}

std::set<uint16_t> hottest(const RoutingTrace& trace, std::size_t begin, std::size_t end) {
  std::vector<uint32_t> counts(trace.experts);
  for (std::size_t token = begin; token < end; ++token)
    for (const uint16_t expert : trace.picks(trace.conversations[0], token, 0)) ++counts[expert];
  std::vector<uint16_t> order(trace.experts);
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](uint16_t expert) { return counts[expert]; });
  return {order.begin(), order.begin() + 16};
}

std::size_t in_both(const std::set<uint16_t>& a, const std::set<uint16_t>& b) {
  return static_cast<std::size_t>(
      std::ranges::count_if(a, [&](uint16_t expert) { return b.contains(expert); }));
}

TEST(GenerateTest, IsTheSameForTheSameSpecAndAnotherForAnotherSeed) {
  EXPECT_EQ(make("tokens=100").conversations[0].picks, make("tokens=100").conversations[0].picks);
  EXPECT_NE(make("tokens=100").conversations[0].picks, make("tokens=100,seed=2").conversations[0].picks);
}

TEST(GenerateTest, HasTheShapeAskedFor) {
  const RoutingTrace trace = make("layers=3,experts=10,used=4,tokens=20,conversations=2,prompt=5");
  EXPECT_EQ(trace.layers, 3U);
  ASSERT_EQ(trace.conversations.size(), 2U);
  for (const auto& conversation : trace.conversations) {
    EXPECT_EQ(conversation.tokens.size(), 25U);
    EXPECT_EQ(std::ranges::count(conversation.roles, TokenRole::kGenerated), 20);
    ASSERT_EQ(conversation.picks.size(), 25U * 3 * 4);
    for (std::size_t token = 0; token < 25; ++token) {
      for (uint32_t layer = 0; layer < 3; ++layer) {
        const auto picks = trace.picks(conversation, token, layer);
        EXPECT_EQ(std::set<uint16_t>(picks.begin(), picks.end()).size(), 4U) << "none twice";
        EXPECT_LT(std::ranges::max(picks), 10U);
      }
    }
  }
}

TEST(GenerateTest, SkewSaysHowUnevenTheUseIs) {
  const double even = share_of_hottest(make("skew=0,tokens=4000"), 0, 4000, 16);
  const double mild = share_of_hottest(make("mild,tokens=4000"), 0, 4000, 16);
  const double strong = share_of_hottest(make("strong,tokens=4000"), 0, 4000, 16);
  EXPECT_NEAR(even, 0.25, 0.03);
  EXPECT_GT(mild, even + 0.1);
  EXPECT_GT(strong, mild + 0.1);
  EXPECT_LT(strong, 0.95);
}

TEST(GenerateTest, ExtremeSkewStillFindsAsManyExpertsAsATokenUses) {
  const RoutingTrace trace = make("skew=4,repeat=0.95,experts=32,used=32,layers=1,tokens=50");
  EXPECT_EQ(trace.conversations[0].picks.size(), (50U + 32) * 32);
}

TEST(GenerateTest, DriftMovesTheHotExpertsAndNothingElseDoes) {
  const RoutingTrace still = make("strong,tokens=4000"), drifting = make("strong,drift=0.05,tokens=4000");
  EXPECT_GE(in_both(hottest(still, 0, 1000), hottest(still, 3000, 4000)), 14U);
  EXPECT_LE(in_both(hottest(drifting, 0, 1000), hottest(drifting, 3000, 4000)), 10U);
}

TEST(GenerateTest, TopicsAlternateAndAPromptAnnouncesThem) {
  const RoutingTrace trace = make("alternating,topics=2,switch=500,prompt=10,tokens=1500,skew=1.2");
  const auto& conversation = trace.conversations[0];
  ASSERT_EQ(conversation.roles.size(), 1500U + 3 * 10);
  EXPECT_EQ(conversation.roles[510], TokenRole::kPrompt);
  EXPECT_EQ(conversation.domains[509], 0);
  EXPECT_EQ(conversation.domains[510], 1);
  EXPECT_EQ(conversation.domains[1020], 0);
  const auto first = hottest(trace, 0, 510), second = hottest(trace, 510, 1020),
             third = hottest(trace, 1020, 1530);
  EXPECT_GE(in_both(first, third), 13U);
  EXPECT_LE(in_both(first, second), 9U);
}

TEST(GenerateTest, RepeatsSoManyExpertsOfTheTokenBefore) {
  const auto repeated = [](std::string_view text) {
    const RoutingTrace trace = make(text);
    double both = 0;
    for (std::size_t token = 1; token < 2000; ++token) {
      const auto before = trace.picks(trace.conversations[0], token - 1, 0);
      for (const uint16_t expert : trace.picks(trace.conversations[0], token, 0))
        both += std::ranges::find(before, expert) != before.end() ? 1 : 0;
    }
    return both / (1999 * 6);
  };
  EXPECT_NEAR(repeated("skew=0,repeat=0,tokens=2000"), 6 / 64.0, 0.02);
  EXPECT_GT(repeated("skew=0,repeat=0.5,tokens=2000"), 0.4);
}

TEST(GenerateTest, NamesWhatIsWrongWithASpec) {
  const auto refused = [](std::string_view text) {
    const auto spec = parse_generate_spec(text);
    EXPECT_FALSE(spec.has_value()) << text;
    return spec.has_value() ? std::string() : std::string(spec.error().message());
  };
  EXPECT_THAT(refused("wild"), HasSubstr("'wild': expected mild, strong, drift, alternating"));
  EXPECT_THAT(refused("tokens=0"), HasSubstr("tokens=0: expected 1 to"));
  EXPECT_THAT(refused("strong,tokens=x"), HasSubstr("tokens=x"));
  EXPECT_THAT(refused("layers=1000"), HasSubstr("expected 1 to 256"));
  EXPECT_THAT(refused("skew=-1"), HasSubstr("skew=-1: expected 0 to 4"));
  EXPECT_THAT(refused("skew=nan"), HasSubstr("skew=nan"));
  EXPECT_THAT(refused("repeat=1"), HasSubstr("0 to 0.95"));
  EXPECT_THAT(refused("drift=2"), HasSubstr("drift=2"));
  EXPECT_THAT(refused("seed=-3"), HasSubstr("seed=-3"));
  EXPECT_THAT(refused("colour=red"), HasSubstr("'colour' is no property"));
  EXPECT_THAT(refused("experts=8,used=9"), HasSubstr("used=9: a layer has 8"));
  EXPECT_THAT(refused("tokens=16000000,conversations=100"), HasSubstr("expected at most"));
  EXPECT_TRUE(parse_generate_spec("").has_value());
}

}  // namespace
}  // namespace strata::simulation
