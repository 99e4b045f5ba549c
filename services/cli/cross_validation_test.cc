#include "services/cli/cross_validation.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "services/cli/profile_build.h"

namespace strata::cli {
namespace {

using residency::RoutingTrace;
using residency::TokenRole;

// One layer of four experts, one a token.
RoutingTrace trace_of(const std::vector<std::vector<uint16_t>>& conversations) {
  RoutingTrace trace{.layers = 1, .experts = 4, .used = 1, .conversations = {}};
  for (const auto& picks : conversations) {
    RoutingTrace::Conversation& made = trace.conversations.emplace_back();
    made.picks = picks;
    made.tokens.resize(picks.size(), 5);
    made.roles.resize(picks.size(), TokenRole::kGenerated);
    made.domains.resize(picks.size(), 0);
  }
  return trace;
}

TEST(CrossValidation, JudgesByTheOthersAlone) {
  // The first asks for 0 only, the others for 1 only: no profile of others helps it, and the oracle does.
  const auto rates = cross_validate(trace_of({{0, 0, 0, 0}, {1, 1}, {1, 1}}), {"1"});
  ASSERT_TRUE(rates) << rates.error().message();
  ASSERT_EQ(rates->size(), 1u);
  const BudgetRates& at = rates->front();
  EXPECT_EQ(at.slots, 1u);
  ASSERT_EQ(at.conversations.size(), 3u);
  EXPECT_DOUBLE_EQ(at.conversations[0].profile, 0.0);
  EXPECT_DOUBLE_EQ(at.conversations[0].oracle, 1.0);
  EXPECT_DOUBLE_EQ(at.conversations[0].first_seen, 0.75) << "the first use is a miss";
  // For the second, 0 is hotter among the others (4 against 2).
  EXPECT_DOUBLE_EQ(at.conversations[1].profile, 0.0);
  EXPECT_DOUBLE_EQ(at.mean().oracle, 1.0);
  EXPECT_DOUBLE_EQ(at.worst().first_seen, 0.5);
}

TEST(CrossValidation, PromptsFillSlotsAndAreNotCounted) {
  RoutingTrace trace = trace_of({{2, 2, 2}, {2, 2}});
  trace.conversations[0].roles[0] = TokenRole::kPrompt;
  const auto rates = cross_validate(trace, {"1"});
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->front().conversations[0].first_seen, 1.0) << "the prompt brought it in";
  EXPECT_DOUBLE_EQ(rates->front().conversations[0].profile, 1.0);
}

TEST(CrossValidation, BudgetsAreNumbersOrShares) {
  const RoutingTrace trace = trace_of({{0, 1}, {2, 3}});
  const auto rates = cross_validate(trace, {"50%", "3", "100%"});
  ASSERT_TRUE(rates);
  EXPECT_EQ((*rates)[0].slots, 2u);
  EXPECT_EQ((*rates)[1].slots, 3u);
  EXPECT_DOUBLE_EQ((*rates)[2].mean().profile, 1.0);
  for (const char* wrong : {"auto", "many", "-1", "120%"}) {
    EXPECT_EQ(cross_validate(trace, {wrong}).error().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST(CrossValidation, NeedsTwoConversationsThatSaySomething) {
  RoutingTrace trace = trace_of({{0, 1}, {2, 3}});
  for (auto& role : trace.conversations[1].roles) role = TokenRole::kPrompt;
  EXPECT_EQ(cross_validate(trace, {"1"}).error().code(), Code::kFailedPrecondition);
}

// The recorded conversations: eight trunk layers and the draft layer.
TEST(CrossValidation, RecordedConversationsLieBetweenFirstSeenAndOracle) {
  const auto trace = read_traces(STRATA_SOURCE_DIR "/models/traces/routing.bin");
  ASSERT_TRUE(trace) << trace.error().message();
  const auto rates = cross_validate(*trace, {"10%", "25%", "50%"}, 8);
  ASSERT_TRUE(rates) << rates.error().message();
  for (const BudgetRates& at : *rates) {
    SCOPED_TRACE(at.budget);
    EXPECT_EQ(at.conversations.size(), 10u);
    EXPECT_GT(at.mean().oracle, at.mean().profile);
    EXPECT_GT(at.mean().oracle, at.mean().first_seen);
    EXPECT_GT(at.mean().profile, 0.05);
  }
  EXPECT_GT((*rates)[2].mean().profile, (*rates)[0].mean().profile);
  const std::string table = cross_validation_text(*rates);
  EXPECT_EQ(std::ranges::count(table, '\n'), 4);
  const auto parsed = boost::json::parse(cross_validation_json(*rates));
  EXPECT_EQ(parsed.as_array().size(), 3u);
  EXPECT_EQ(parsed.at(0).at("conversations").as_array().size(), 10u);
  EXPECT_EQ(parsed.at(1).at("slots").to_number<int>(), 128);
}

}  // namespace
}  // namespace strata::cli
