// What an operator may change, against the real policies.

#include "cache-manager/residency_control.h"

#include <gtest/gtest.h>

namespace strata::cache_manager {
namespace {

using Amount = config::Amount;
using Kind = config::Amount::Kind;

TEST(ExchangeRates, SayWhatTheSettingsMean) {
  ExchangeRates rates;
  EXPECT_EQ(resolve_limits(rates, 48).exchanges_per_window, 24) << "one per two layers";
  EXPECT_EQ(resolve_in_flight(rates, 48), 72u) << "what three windows may begin";
  EXPECT_EQ(resolve_limits(rates, 3).exchanges_per_window, 1.5);
  EXPECT_EQ(resolve_in_flight(rates, 3), 5u);
  EXPECT_EQ(resolve_in_flight(rates, 1), 4u) << "at least";
  EXPECT_EQ(resolve_in_flight(rates, 256), 256u) << "at most";
  EXPECT_EQ(resolve_limits(rates, 48).bytes_per_second, std::numeric_limits<double>::infinity());
  rates = {.exchanges_per_window = {Kind::kPercent, 25},
           .copy_budget = config::Size::of(4096),
           .exchanges_in_flight = config::Count(0)};
  EXPECT_EQ(resolve_limits(rates, 48).exchanges_per_window, 12);
  EXPECT_EQ(resolve_limits(rates, 48).bytes_per_second, 4096);
  EXPECT_EQ(resolve_in_flight(rates, 48), 0u);
  rates.exchanges_per_window = {Kind::kNumber, 3};
  EXPECT_EQ(resolve_limits(rates, 48).exchanges_per_window, 3);
}

class ResidencyControlTest : public testing::Test {
 protected:
  Status apply(const ControlChange& change) {
    return control_.apply(change, residency::make_policy, options_, policy_);
  }
  void expect_unchanged() {
    EXPECT_TRUE(control_.changed().empty());
    EXPECT_EQ(policy_->name(), "lru");
    EXPECT_TRUE(control_.quotas().empty());
    EXPECT_TRUE(control_.pins().empty());
  }

  residency::PolicyOptions options_{
      .shape = {.layers = 2, .experts = 6}, .slots = 4, .decay_tokens = 256, .experts_of_layer = {6, 3}};
  ResidencyControl control_{"lru", {}, 2};
  std::unique_ptr<residency::Policy> policy_ =
      std::move(control_.make_policy(residency::make_policy, options_)->policy);
};

TEST_F(ResidencyControlTest, ChangesWholeOrNotAtAll) {
  ControlChange change;
  change.pin = {{1, 2}};
  change.exchanges_per_window = Amount{Kind::kNumber, 1};
  change.quotas = std::vector<uint32_t>{0, 4};  // layer 1 has three experts
  EXPECT_EQ(apply(change).code(), Code::kInvalidArgument);
  change.quotas.reset();
  change.unpin = {{0, 0}};
  EXPECT_EQ(apply(change).code(), Code::kNotFound);
  change.unpin.clear();
  change.policy = "lfru";
  const Status unknown = apply(change);
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.message().find("lfu-decay"), std::string::npos) << unknown.message();
  expect_unchanged();
  EXPECT_EQ(control_.limits().exchanges_per_window, 1) << "two layers";

  change.policy = "static";
  change.quotas = std::vector<uint32_t>{1, 3};
  ASSERT_TRUE(apply(change).ok());
  EXPECT_EQ(policy_->name(), "static");
  EXPECT_EQ(policy_->quotas()[1], 3u);
  EXPECT_TRUE(control_.pinned({1, 2}));
  EXPECT_FALSE(control_.pinned({1, 1}));
  EXPECT_EQ(control_.changed(), (std::vector<std::string>{"policy", "quotas", "rate", "pins"}));
}

TEST_F(ResidencyControlTest, PinsWhatTheModelHasAndTheQuotaHolds) {
  ControlChange change;
  for (const residency::ExpertKey none : {residency::ExpertKey{1, 3}, {2, 0}, {UINT32_MAX, UINT32_MAX}}) {
    change.pin = {none};
    EXPECT_EQ(apply(change).code(), Code::kInvalidArgument) << none.layer << ":" << none.expert;
  }
  change.pin = {{0, 0}, {0, 1}, {0, 2}};
  change.quotas = std::vector<uint32_t>{2, 2};
  EXPECT_EQ(apply(change).code(), Code::kInvalidArgument) << "a quota of two";
  expect_unchanged();
  change.quotas.reset();
  change.pin = {{0, 1}, {0, 0}, {0, 1}};
  ASSERT_TRUE(apply(change).ok()) << "twice is once";
  ASSERT_TRUE(apply(change).ok()) << "again is nothing new";
  EXPECT_EQ(control_.pins().size(), 2u);
  ControlChange others;
  others.unpin_all = true;
  others.pin = {{1, 1}};
  ASSERT_TRUE(apply(others).ok());
  EXPECT_FALSE(control_.pinned({0, 1}));
  EXPECT_TRUE(control_.pinned({1, 1}));
}

TEST_F(ResidencyControlTest, EmptyQuotasAreThePolicysOwnAgain) {
  ControlChange change;
  change.quotas = std::vector<uint32_t>{3, 1};
  ASSERT_TRUE(apply(change).ok());
  EXPECT_EQ(policy_->quotas()[0], 3u);
  change.quotas->clear();
  ASSERT_TRUE(apply(change).ok());
  expect_unchanged();
}

TEST_F(ResidencyControlTest, AnotherGpuWorkerGetsTheSameDemandsOrNoneWithAReason) {
  ControlChange change;
  change.quotas = std::vector<uint32_t>{3, 1};
  change.policy = "static";
  ASSERT_TRUE(apply(change).ok());
  auto same = control_.make_policy(residency::make_policy, options_);
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->forgotten.ok());
  EXPECT_EQ(same->policy->quotas()[0], 3u);
  options_.slots = 6;
  auto larger = control_.make_policy(residency::make_policy, options_);
  ASSERT_TRUE(larger);
  EXPECT_EQ(larger->forgotten.code(), Code::kInvalidArgument);
  EXPECT_EQ(larger->policy->name(), "static") << "the policy is kept";
  EXPECT_EQ(control_.changed(), (std::vector<std::string>{"policy"}));
}

}  // namespace
}  // namespace strata::cache_manager
