// Random uses, budgets, landing times and demands on shapes with odd and extreme numbers of slots: what every
// policy promises (policy.h). SlotWorld checks each proposal.
#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "services/residency/slot_world.h"

namespace strata::residency {
namespace {

using Random = std::mt19937_64;

class PolicyPropertyTest
    : public testing::TestWithParam<std::tuple<std::string, ModelShape, uint32_t, bool>> {};

std::unique_ptr<Policy> policy_of(std::string_view name, const PolicyOptions& options) {
  auto policy = make_policy(name, options);
  EXPECT_TRUE(policy.has_value()) << policy.error().message();
  return std::move(*policy);
}

std::vector<float> random_profile(ModelShape shape, Random& random) {
  std::vector<float> profile;
  for (uint32_t i = 0; i < shape.layers * shape.experts; ++i)
    profile.push_back(static_cast<float>(random() % 1000) / 1000);
  return profile;
}

std::vector<uint32_t> random_uses(const PolicyOptions& options, Random& random) {
  const auto [layers, experts] = options.shape;
  std::vector<uint32_t> uses(std::size_t{layers} * experts);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (uint32_t expert = 0; expert < options.experts_of_layer[layer]; ++expert)
      uses[std::size_t{layer} * experts + expert] =
          random() % 4 == 0 ? static_cast<uint32_t>(random() % 9) : 0;
  }
  return uses;
}

// Some experts, each at most once and of those that exist; as many as may be pinned.
std::vector<ExpertKey> random_pins(const PolicyOptions& options, std::span<const uint32_t> quotas,
                                   Random& random) {
  std::vector<ExpertKey> pins;
  for (uint32_t layer = 0; layer < options.shape.layers; ++layer) {
    uint32_t of_layer = 0;
    for (uint32_t expert = 0; expert < options.experts_of_layer[layer]; ++expert) {
      if (random() % 6 != 0 || of_layer == quotas[layer]) continue;
      pins.push_back({layer, expert});
      ++of_layer;
    }
  }
  return pins;
}

// Gives out the slots one by one.
std::vector<uint32_t> random_quotas(const PolicyOptions& options, uint32_t usable, Random& random) {
  std::vector<uint32_t> quotas(options.shape.layers);
  while (usable > 0) {
    const auto layer = static_cast<uint32_t>(random() % options.shape.layers);
    if (quotas[layer] == options.experts_of_layer[layer]) continue;
    ++quotas[layer];
    --usable;
  }
  return quotas;
}

TEST_P(PolicyPropertyTest, KeepsEveryPromiseUnderRandomUse) {
  const auto& [name, shape, slots, with_profile] = GetParam();
  Random random(slots + 1000 * shape.layers);
  PolicyOptions options{.shape = shape, .slots = slots};
  if (with_profile) options.profile = random_profile(shape, random);
  options.experts_of_layer.assign(shape.layers, shape.experts);
  options.experts_of_layer.back() = (shape.experts + 1) / 2;
  const uint32_t usable =
      std::min(slots, std::accumulate(options.experts_of_layer.begin(), options.experts_of_layer.end(), 0U));
  auto policy = policy_of(name, options);
  auto twin = policy_of(name, options);
  Control control;

  SlotWorld world(shape, slots);
  for (int step = 0; step < 300; ++step) {
    if (step % 50 == 49) {
      control.quotas = random() % 2 == 0 ? std::vector<uint32_t>() : random_quotas(options, usable, random);
      control.pins = random_pins(options, random_quotas(options, usable, random), random);
      const bool accepted = policy->control(control).ok();
      EXPECT_EQ(twin->control(control).ok(), accepted);
      if (!accepted) {
        control = {.quotas = {}, .pins = {}};
        ASSERT_TRUE(policy->control(control).ok() && twin->control(control).ok());
      }
    }
    const auto decoded = random_uses(options, random);
    const auto read = random_uses(options, random);
    Usage usage{
        .decode_uses = decoded, .decode_tokens = random() % 20, .prefill_uses = {}, .prefill_tokens = 0};
    if (random() % 3 == 0) {
      usage.prefill_uses = read;
      usage.prefill_tokens = random() % 2000;
    }
    if (random() % 5 == 0) usage.decode_uses = {};
    if (usage.decode_uses.empty()) usage.decode_tokens = 0;
    policy->observe(usage);
    twin->observe(usage);
    const auto budget = static_cast<uint32_t>(random() % 8);
    const uint32_t free_before = world.count(SlotView::State::kFree) - (slots - usable);
    const auto proposals = policy->propose(world.slots(), budget);
    EXPECT_GE(proposals.size(), std::min(free_before, budget))
        << "free slots are filled as far as the budget goes";
    const auto again = twin->propose(world.slots(), budget);
    ASSERT_TRUE(std::equal(
        proposals.begin(), proposals.end(), again.begin(), again.end(),
        [](const Proposal& a, const Proposal& b) { return a.slot == b.slot && a.incoming == b.incoming; }))
        << "not deterministic";
    for (const Proposal& proposal : proposals) {
      ASSERT_LT(proposal.incoming.expert, options.experts_of_layer[proposal.incoming.layer]);
      const SlotView& victim = world.slots()[proposal.slot];
      ASSERT_TRUE(victim.state == SlotView::State::kFree || !std::ranges::count(control.pins, victim.key))
          << "a pinned victim";
    }
    ASSERT_NO_FATAL_FAILURE(world.begin(proposals, budget)) << "step " << step;
    const auto quotas = policy->quotas();
    ASSERT_EQ(quotas.size(), shape.layers);
    if (control.quotas.empty()) {
      for (uint32_t layer = 0; layer < shape.layers; ++layer) ASSERT_EQ(world.held_by(layer), quotas[layer]);
    }
    if (random() % 3 > 0) world.land_all();
  }
  world.land_all();
  EXPECT_EQ(world.count(SlotView::State::kResident), usable);
}

TEST_P(PolicyPropertyTest, ReachesQuotasAndPinsThatWereDemanded) {
  const auto& [name, shape, slots, with_profile] = GetParam();
  Random random(slots + 1000 * shape.layers + 1);
  PolicyOptions options{.shape = shape, .slots = slots};
  if (with_profile) options.profile = random_profile(shape, random);
  options.experts_of_layer.assign(shape.layers, shape.experts);
  const uint32_t usable = std::min(slots, shape.layers * shape.experts);
  auto policy = policy_of(name, options);
  SlotWorld world(shape, slots);
  const auto looks = [&](int count) {
    for (int look = 0; look < count; ++look) {
      const auto uses = random_uses(options, random);
      policy->observe({.decode_uses = uses, .decode_tokens = 8, .prefill_uses = {}, .prefill_tokens = 0});
      world.begin(policy->propose(world.slots(), 4), 4);
      world.land_all();
    }
  };
  looks(50);
  Control control{.quotas = random_quotas(options, usable, random), .pins = {}};
  control.pins = random_pins(options, control.quotas, random);
  ASSERT_TRUE(policy->control(control).ok());
  looks(100);
  for (uint32_t layer = 0; layer < shape.layers; ++layer)
    EXPECT_EQ(world.held_by(layer), control.quotas[layer]);
  for (const ExpertKey pin : control.pins) EXPECT_TRUE(world.resident(pin));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PolicyPropertyTest,
    testing::Combine(testing::ValuesIn(policy_names()),
                     testing::Values(ModelShape{1, 1}, ModelShape{3, 8}, ModelShape{7, 16}),
                     testing::Values(0U, 1U, 2U, 13U, 24U, 111U, 112U, 150U), testing::Bool()));

}  // namespace
}  // namespace strata::residency
