// What an operator may demand of a running policy, and what it then does.
#include <gmock/gmock.h>

#include "services/residency/slot_world.h"

namespace strata::residency {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ControlTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Policy> make(const PolicyOptions& options) {
    auto policy = make_policy(GetParam(), options);
    EXPECT_TRUE(policy.has_value()) << policy.error().message();
    return std::move(*policy);
  }
  static void use(Policy& policy, std::vector<uint32_t> uses, uint64_t tokens) {
    policy.observe({.decode_uses = uses, .decode_tokens = tokens, .prefill_uses = {}, .prefill_tokens = 0});
  }
};

TEST_P(ControlTest, RefusesWhatCannotBeHadAndStaysAsItWas) {
  auto policy = make({.shape = {2, 4}, .slots = 4, .profile = {}, .experts_of_layer = {4, 3}});
  const auto refused = [&](Control control) {
    const Status status = policy->control(std::move(control));
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({.quotas = {4}, .pins = {}}), HasSubstr("1 quotas for 2 layers"));
  EXPECT_THAT(refused({.quotas = {2, 1}, .pins = {}}), HasSubstr("give out 3 slots, expected all 4"));
  EXPECT_THAT(refused({.quotas = {0, 4}, .pins = {}}), HasSubstr("layer 1, which has 3 experts"));
  EXPECT_THAT(refused({.quotas = {}, .pins = {{2, 0}}}), HasSubstr("layer 2 expert 0"));
  EXPECT_THAT(refused({.quotas = {}, .pins = {{1, 3}}}), HasSubstr("layer 1 expert 3"));
  EXPECT_THAT(refused({.quotas = {}, .pins = {{0, 1}, {1, 1}, {0, 1}}}), HasSubstr("pinned twice"));
  EXPECT_THAT(refused({.quotas = {2, 2}, .pins = {{0, 0}, {0, 1}, {0, 2}}}), HasSubstr("its quota of 2"));
  EXPECT_THAT(refused({.quotas = {}, .pins = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}}}),
              HasSubstr("5 experts are pinned, there are 4 slots"));
  EXPECT_THAT(policy->quotas(), ElementsAre(0, 0)) << "nothing is there yet";
  EXPECT_TRUE(policy->control({.quotas = {3, 1}, .pins = {{0, 0}, {0, 1}, {0, 2}}}).ok());
  EXPECT_THAT(policy->quotas(), ElementsAre(3, 1));
  EXPECT_TRUE(policy->control({}).ok());
  policy->propose(std::vector<SlotView>(4), 4);
  EXPECT_THAT(policy->quotas(), ElementsAre(2, 2)) << "shared again";
}

TEST_P(ControlTest, PinnedExpertsComeFirstAndStay) {
  std::vector<float> profile = {0.4F, 0.3F, 0.2F, 0.1F, 0.4F, 0.3F, 0.2F, 0.1F};
  auto policy = make({.shape = {2, 4}, .slots = 4, .profile = profile});
  SlotWorld world({2, 4}, 4);
  world.begin(policy->propose(world.slots(), 4), 4);
  world.land_all();
  ASSERT_FALSE(world.resident({1, 3}));
  ASSERT_TRUE(policy->control({.quotas = {}, .pins = {{1, 3}}}).ok());
  const auto proposals = policy->propose(world.slots(), 1);
  ASSERT_EQ(proposals.size(), 1U);
  EXPECT_EQ(proposals[0].incoming, (ExpertKey{1, 3})) << "although no token ever used it";
  world.begin(proposals, 1);
  world.land_all();
  for (int look = 0; look < 50; ++look) {
    use(*policy, {9, 9, 0, 0, 9, 9, 9, 0}, 18);
    world.begin(policy->propose(world.slots(), 4), 4);
    world.land_all();
    ASSERT_TRUE(world.resident({1, 3}));
  }
  ASSERT_TRUE(policy->control({}).ok());
  for (int look = 0; look < 50; ++look) {
    use(*policy, {9, 9, 0, 0, 9, 9, 9, 0}, 18);
    world.begin(policy->propose(world.slots(), 4), 4);
    world.land_all();
  }
  EXPECT_FALSE(world.resident({1, 3})) << "unpinned, it goes as any other";
}

TEST_P(ControlTest, NewQuotasAreReachedByExchanges) {
  auto policy = make({.shape = {2, 4}, .slots = 4});
  SlotWorld world({2, 4}, 4);
  world.begin(policy->propose(world.slots(), 4), 4);
  world.land_all();
  ASSERT_EQ(world.held_by(0), 2U);
  ASSERT_TRUE(policy->control({.quotas = {4, 0}, .pins = {}}).ok());
  for (int look = 0; look < 20; ++look) {
    use(*policy, {3, 2, 2, 1, 8, 0, 0, 0}, 8);
    world.begin(policy->propose(world.slots(), 1), 1);
    world.land_all();
  }
  EXPECT_EQ(world.held_by(0), 4U);
  EXPECT_EQ(world.held_by(1), 0U);
}

TEST_P(ControlTest, NeverProposesAnExpertThatItsLayerDoesNotHave) {
  auto policy = make({.shape = {3, 8}, .slots = 14, .profile = {}, .experts_of_layer = {8, 2, 5}});
  SlotWorld world({3, 8}, 14);
  world.begin(policy->propose(world.slots(), 20), 20);
  EXPECT_THAT(policy->quotas(), ElementsAre(7, 2, 5));
  for (uint32_t expert = 2; expert < 8; ++expert) EXPECT_FALSE(world.holds({1, expert})) << expert;
  for (uint32_t expert = 5; expert < 8; ++expert) EXPECT_FALSE(world.holds({2, expert})) << expert;
}

TEST_P(ControlTest, LayersShareTheSlotsUntilQuotasAreSet) {
  // The first layer uses one expert, the second all four.
  auto policy = make({.shape = {2, 4}, .slots = 5, .profile = {1, 0, 0, 0, .25F, .25F, .25F, .25F}});
  SlotWorld world({2, 4}, 5);
  const auto settle = [&] {
    for (int look = 0; look < 100; ++look) {
      use(*policy, {8, 0, 0, 0, 2, 2, 2, 2}, 8);
      world.begin(policy->propose(world.slots(), 2), 2);
      world.land_all();
    }
  };
  settle();
  EXPECT_THAT(policy->quotas(), ElementsAre(1, 4)) << "the division that misses nothing";
  ASSERT_TRUE(policy->control({.quotas = {3, 2}, .pins = {}}).ok());
  settle();
  EXPECT_EQ(world.held_by(0), 3U);
  EXPECT_EQ(world.held_by(1), 2U);
}

INSTANTIATE_TEST_SUITE_P(Policies, ControlTest, testing::ValuesIn(policy_names()), [](const auto& named) {
  std::string name = named.param;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace strata::residency
