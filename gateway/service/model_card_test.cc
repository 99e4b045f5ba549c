#include "gateway/service/model_card.h"

#include <gtest/gtest.h>

namespace strata::gateway {
namespace {

TEST(ThinkingBudgetsTest, ComeFromTheSettingsAndZeroIsNoLimit) {
  config::Settings settings;
  settings.thinking_low_tokens.set(77);
  settings.thinking_high_tokens.set(0);
  const ThinkingBudgets budgets = thinking_budgets(settings);
  EXPECT_EQ(budgets.of(Effort::kLow), 77u);
  EXPECT_EQ(budgets.of(Effort::kHigh), kThinkingUnlimited);
  EXPECT_EQ(budgets.of(Effort::kXhigh), kThinkingUnlimited) << "the default";
  EXPECT_LT(budgets.of(Effort::kMinimal), budgets.of(Effort::kMedium));
}

TEST(ThinkingBudgetsTest, ANumberWinsOverALevelAndNothingIsNoLimit) {
  const ThinkingBudgets budgets{.low = 10};
  EXPECT_EQ(resolve_thinking({}, budgets), kThinkingUnlimited);
  EXPECT_EQ(resolve_thinking({.on = true, .effort = Effort::kLow}, budgets), 10u);
  EXPECT_EQ(resolve_thinking({.effort = Effort::kLow, .budget_tokens = 500}, budgets), 500u);
  EXPECT_EQ(resolve_thinking({.on = true, .effort = Effort::kLow, .budget_tokens = 0}, budgets), 0u);
}

}  // namespace
}  // namespace strata::gateway
