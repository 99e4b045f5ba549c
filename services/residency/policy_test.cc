#include "services/residency/policy.h"

#include <gmock/gmock.h>

#include "services/residency/slot_world.h"

namespace strata::residency {
namespace {

using testing::ElementsAre;

std::unique_ptr<Policy> policy_of(std::string_view name, const PolicyOptions& options) {
  auto policy = make_policy(name, options);
  EXPECT_TRUE(policy.has_value()) << policy.error().message();
  return std::move(*policy);
}

std::vector<ExpertKey> incoming(const std::vector<Proposal>& proposals) {
  std::vector<ExpertKey> keys;
  for (const Proposal& proposal : proposals) keys.push_back(proposal.incoming);
  return keys;
}

void see(Policy& policy, const std::vector<uint32_t>& decode_uses, uint64_t tokens) {
  policy.observe(
      {.decode_uses = decode_uses, .decode_tokens = tokens, .prefill_uses = {}, .prefill_tokens = 0});
}

const SlotView kFree{};
SlotView holding(uint32_t layer, uint32_t expert) { return {SlotView::State::kResident, {layer, expert}}; }
SlotView busy_with(uint32_t layer, uint32_t expert) { return {SlotView::State::kBusy, {layer, expert}}; }

TEST(PolicyTest, ListsTheKnownNamesWhenAskedForAnother) {
  const auto policy = make_policy("magic", {.shape = {1, 1}, .slots = 1});
  ASSERT_FALSE(policy.has_value());
  EXPECT_EQ(policy.error().code(), Code::kInvalidArgument);
  for (const char* name : {"magic", "lfu", "lfu-decay", "lru", "static"})
    EXPECT_THAT(policy.error().message(), testing::HasSubstr(name));
}

TEST(PolicyTest, RefusesOptionsThatCannotWork) {
  auto refused = [](const PolicyOptions& options) { return !make_policy("lfu-decay", options).has_value(); };
  EXPECT_TRUE(refused({.shape = {0, 8}}));
  EXPECT_TRUE(refused({.shape = {8, 0}}));
  EXPECT_TRUE(refused({.shape = {1000, 8}}));
  EXPECT_TRUE(refused({.shape = {1, 2}, .profile = {1.0F}}));
  EXPECT_TRUE(refused({.shape = {1, 2}, .profile = {1.0F, std::nanf("")}}));
  EXPECT_TRUE(refused({.shape = {1, 2}, .profile = {1.0F, -1.0F}}));
  EXPECT_TRUE(refused({.shape = {1, 2}, .decay_tokens = 0}));
  EXPECT_TRUE(refused({.shape = {1, 2}, .decay_tokens = std::nan("")}));
  EXPECT_FALSE(refused({.shape = {1, 2}}));
}

TEST(PolicyTest, FillsFreeSlotsInTheProfilesOrder) {
  const std::vector<float> profile = {0.1F, 0.6F, 0.3F, 0.5F, 0.1F, 0.4F};
  for (const char* name : {"lfu-decay", "lru", "static"}) {
    auto policy = policy_of(name, {.shape = {2, 3}, .slots = 4, .profile = profile});
    const std::vector<SlotView> slots(4, kFree);
    EXPECT_THAT(incoming(policy->propose(slots, 10)),
                ElementsAre(ExpertKey{0, 1}, ExpertKey{1, 0}, ExpertKey{1, 2}, ExpertKey{0, 2}))
        << name;
  }
}

TEST(PolicyTest, FillsRoundByRoundOverTheLayersWithoutProfile) {
  auto policy = policy_of("lfu-decay", {.shape = {2, 3}, .slots = 4});
  const std::vector<SlotView> slots(4, kFree);
  EXPECT_THAT(incoming(policy->propose(slots, 3)),
              ElementsAre(ExpertKey{0, 0}, ExpertKey{1, 0}, ExpertKey{0, 1}));
}

TEST(PolicyTest, FillsByUseWhatTheProfileDoesNotDecide) {
  auto policy = policy_of("lfu-decay", {.shape = {1, 4}, .slots = 2});
  see(*policy, std::vector<uint32_t>{0, 1, 0, 5}, 6);
  const std::vector<SlotView> slots(2, kFree);
  EXPECT_THAT(incoming(policy->propose(slots, 2)), ElementsAre(ExpertKey{0, 3}, ExpertKey{0, 1}));
}

TEST(PolicyTest, ExchangesOnlyForAClearAdvantage) {
  auto policy = policy_of("lfu-decay", {.shape = {1, 3}, .slots = 1});
  const std::vector<SlotView> slots = {holding(0, 0)};
  see(*policy, std::vector<uint32_t>{20, 22, 0}, 42);
  EXPECT_TRUE(policy->propose(slots, 1).empty());
  see(*policy, std::vector<uint32_t>{0, 20, 0}, 20);
  EXPECT_THAT(incoming(policy->propose(slots, 1)), ElementsAre(ExpertKey{0, 1}));
}

TEST(PolicyTest, DoesNotSwingBetweenTwoExpertsInTurn) {
  auto policy = policy_of("lfu-decay", {.shape = {1, 2}, .slots = 1, .decay_tokens = 64});
  SlotWorld world({1, 2}, 1);
  for (uint32_t token = 0; token < 1000; ++token) {
    const bool odd = token % 2 == 1;
    see(*policy, std::vector<uint32_t>{odd ? 0U : 1U, odd ? 1U : 0U}, 1);
    world.begin(policy->propose(world.slots(), 1), 1);
    world.land_all();
  }
  EXPECT_LE(world.exchanges(), 1U);
}

TEST(PolicyTest, ForgetsOldUses) {
  auto policy = policy_of("lfu-decay", {.shape = {1, 2}, .slots = 1, .decay_tokens = 16});
  const std::vector<SlotView> slots = {holding(0, 0)};
  see(*policy, std::vector<uint32_t>{100, 0}, 100);
  see(*policy, std::vector<uint32_t>{0, 16}, 160);
  EXPECT_THAT(incoming(policy->propose(slots, 1)), ElementsAre(ExpertKey{0, 1}));
}

TEST(PolicyTest, LetsAProfileCountAsThePast) {
  // The profile says expert 0; a handful of other tokens must not overturn it, many must.
  auto policy =
      policy_of("lfu-decay", {.shape = {1, 2}, .slots = 1, .decay_tokens = 64, .profile = {0.9F, 0.1F}});
  const std::vector<SlotView> slots = {holding(0, 0)};
  see(*policy, std::vector<uint32_t>{0, 8}, 8);
  EXPECT_TRUE(policy->propose(slots, 1).empty());
  see(*policy, std::vector<uint32_t>{0, 200}, 200);
  EXPECT_EQ(policy->propose(slots, 1).size(), 1U);
}

TEST(PolicyTest, StaticKeepsToTheProfileWhateverIsUsed) {
  auto policy = policy_of("static", {.shape = {1, 3}, .slots = 1, .profile = {0.2F, 0.7F, 0.1F}});
  see(*policy, std::vector<uint32_t>{0, 0, 1000}, 1000);
  EXPECT_TRUE(policy->propose(std::vector<SlotView>{holding(0, 1)}, 5).empty());
  // After a start with the residency of another policy it returns to the profile.
  EXPECT_THAT(incoming(policy->propose(std::vector<SlotView>{holding(0, 2)}, 5)),
              ElementsAre(ExpertKey{0, 1}));
}

TEST(PolicyTest, LruTakesTheLeastRecentlyUsedAsVictim) {
  auto policy = policy_of("lru", {.shape = {1, 4}, .slots = 2});
  see(*policy, std::vector<uint32_t>{9, 0, 0, 0}, 9);
  see(*policy, std::vector<uint32_t>{0, 1, 0, 0}, 1);
  const std::vector<SlotView> slots = {holding(0, 1), holding(0, 0)};
  EXPECT_TRUE(policy->propose(slots, 2).empty());
  see(*policy, std::vector<uint32_t>{0, 0, 1, 0}, 1);
  const auto proposals = policy->propose(slots, 2);
  ASSERT_EQ(proposals.size(), 1U) << "the two experts used last stay";
  EXPECT_EQ(proposals[0].slot, 1U);
  EXPECT_EQ(proposals[0].incoming, (ExpertKey{0, 2}));
}

TEST(PolicyTest, LeavesBusySlotsAndTheirExpertsAlone) {
  auto policy = policy_of("lfu-decay", {.shape = {1, 4}, .slots = 2});
  see(*policy, std::vector<uint32_t>{0, 0, 50, 40}, 50);
  const std::vector<SlotView> slots = {busy_with(0, 2), holding(0, 0)};
  const auto proposals = policy->propose(slots, 5);
  ASSERT_EQ(proposals.size(), 1U);
  EXPECT_EQ(proposals[0].slot, 1U);
  EXPECT_EQ(proposals[0].incoming, (ExpertKey{0, 3}));
}

TEST(PolicyTest, MovesSlotsToALayerBelowItsQuota) {
  // All four slots went to layer 0 before the quotas came.
  auto policy = policy_of("lfu-decay", {.shape = {2, 4}, .slots = 4});
  ASSERT_TRUE(policy->control({.quotas = {2, 2}, .pins = {}}).ok());
  see(*policy, std::vector<uint32_t>{5, 4, 3, 2, 0, 1, 0, 2}, 8);
  const std::vector<SlotView> slots = {holding(0, 0), holding(0, 1), holding(0, 2), holding(0, 3)};
  const auto proposals = policy->propose(slots, 10);
  ASSERT_EQ(proposals.size(), 2U);
  EXPECT_EQ(proposals[0].slot, 3U);
  EXPECT_EQ(proposals[0].incoming, (ExpertKey{1, 3}));
  EXPECT_EQ(proposals[1].slot, 2U);
  EXPECT_EQ(proposals[1].incoming, (ExpertKey{1, 1}));
}

TEST(PolicyTest, ProposesTheMostValuableExchangesFirst) {
  auto policy = policy_of("lfu-decay", {.shape = {2, 2}, .slots = 2});
  see(*policy, std::vector<uint32_t>{0, 10, 0, 90}, 100);
  const std::vector<SlotView> slots = {holding(0, 0), holding(1, 0)};
  EXPECT_THAT(incoming(policy->propose(slots, 2)), ElementsAre(ExpertKey{1, 1}, ExpertKey{0, 1}));
  EXPECT_THAT(incoming(policy->propose(slots, 1)), ElementsAre(ExpertKey{1, 1}));
  EXPECT_TRUE(policy->propose(slots, 0).empty());
}

}  // namespace
}  // namespace strata::residency
