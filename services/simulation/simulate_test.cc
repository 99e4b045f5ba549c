#include "services/simulation/simulate.h"

#include <gmock/gmock.h>

#include "services/residency/trace_profile.h"
#include "services/simulation/generate.h"

namespace strata::simulation {
namespace {

using testing::HasSubstr;

NamedTrace traces_of(std::string_view spec) {
  NamedTrace named{generate(*parse_generate_spec(spec)), {}};
  for (std::size_t i = 0; i < named.trace.conversations.size(); ++i) named.names.push_back(std::to_string(i));
  return named;
}

SimulateOptions options_with(std::vector<std::string> policies, uint32_t slots) {
  SimulateOptions options;
  options.policies = std::move(policies);
  options.budgets = {{"some", slots}};
  options.replay.limits.exchanges_per_window = 4;
  return options;
}

TEST(SlotBudgetTest, IsANumberOrAShareOfTheExperts) {
  EXPECT_EQ(parse_slot_budget("10%", 512)->slots, 51U);
  EXPECT_EQ(parse_slot_budget("12.5%", 512)->slots, 64U);
  EXPECT_EQ(parse_slot_budget("100%", 512)->slots, 512U);
  EXPECT_EQ(parse_slot_budget("7", 512)->slots, 7U);
  EXPECT_EQ(parse_slot_budget("7", 512)->text, "7");
  for (const char* wrong : {"", "%", "0", "0%", "101%", "513", "-1", "x", "10%%", "nan"})
    EXPECT_EQ(parse_slot_budget(wrong, 512).error().code(), Code::kInvalidArgument) << wrong;
}

TEST(SimulateTest, AConversationIsJudgedOnWhatTheOthersTeach) {
  // Two topics; conversation 2 is the only one of its topic that is not left out when it is judged.
  const NamedTrace traces = traces_of("topics=3,conversations=3,tokens=300,skew=1.2");
  const auto rows = simulate(traces, options_with({"static"}, 128));
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  ASSERT_EQ(rows->size(), 1U);
  for (const ConversationRow& row : rows->front().conversations)
    EXPECT_LT(row.result.decode_rate(), row.oracle - 0.15) << "it knows other topics only";
  SimulateOptions knowing = options_with({"static"}, 128);
  knowing.knowledge = Knowledge::kProfile;
  knowing.profile = residency::profile_of(traces.trace, 1);
  const auto other = simulate(traces, knowing);
  EXPECT_EQ(other->front().conversations[1].result.decode_hits,
            rows->front().conversations[1].result.decode_hits);
  EXPECT_GT(other->front().conversations[0].result.decode_hits,
            rows->front().conversations[0].result.decode_hits);
}

TEST(SimulateTest, RowsComeBudgetByBudgetForEachPolicy) {
  const NamedTrace traces = traces_of("tokens=100,conversations=2");
  SimulateOptions options = options_with({}, 32);
  options.budgets.push_back({"more", 256});
  const auto rows = simulate(traces, options);
  ASSERT_TRUE(rows.has_value());
  const auto names = residency::policy_names();
  ASSERT_EQ(rows->size(), 2 * names.size());
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Row& row = (*rows)[i];
    EXPECT_EQ(row.policy, names[i % names.size()]);
    EXPECT_EQ(row.budget.slots, i < names.size() ? 32U : 256U);
    EXPECT_LE(row.total().exchanges, 4 * row.total().windows);
    EXPECT_GE(row.hit_rate(), 0);
    EXPECT_LE(row.oracle(), row.belady());
    EXPECT_EQ(row.total().decode_uses, 2U * 100 * 48);
  }
}

TEST(SimulateTest, OneArenaServesAllConversationsWhenAskedTo) {
  const NamedTrace traces = traces_of("topics=1,conversations=4,tokens=200,skew=1.2");
  SimulateOptions options = options_with({"lfu"}, 64);
  options.knowledge = Knowledge::kNothing;
  const auto fresh = simulate(traces, options);
  options.continuous = true;
  const auto continuous = simulate(traces, options);
  ASSERT_TRUE(fresh.has_value() && continuous.has_value());
  EXPECT_EQ(continuous->front().conversations[0].result.decode_hits,
            fresh->front().conversations[0].result.decode_hits);
  EXPECT_GT(continuous->front().conversations[3].result.decode_hits,
            fresh->front().conversations[3].result.decode_hits);
}

TEST(SimulateTest, SaysWhatIsWrong) {
  NamedTrace traces = traces_of("tokens=20,conversations=2");
  const auto refused = [&](const SimulateOptions& options) {
    const auto rows = simulate(traces, options);
    if (rows.has_value()) return std::string("simulated without complaint");
    EXPECT_EQ(rows.error().code(), Code::kInvalidArgument);
    return std::string(rows.error().message());
  };
  EXPECT_THAT(refused(options_with({"magic"}, 32)), HasSubstr("no residency policy 'magic'"));
  SimulateOptions options = options_with({"lru"}, 32);
  options.continuous = true;
  EXPECT_THAT(refused(options), HasSubstr("one arena"));
  options.knowledge = Knowledge::kProfile;
  EXPECT_THAT(refused(options), HasSubstr("the profile has 0 layers of 0 experts"));
  for (auto& conversation : traces.trace.conversations)
    std::ranges::fill(conversation.roles, residency::TokenRole::kPrompt);
  EXPECT_THAT(refused(options_with({"lru"}, 32)), HasSubstr("no conversation has a generated token"));
}

}  // namespace
}  // namespace strata::simulation
