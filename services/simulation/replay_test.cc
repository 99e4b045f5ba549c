// The replay's order of things, with a policy that proposes what the test wrote down.
#include "services/simulation/replay.h"

#include <gmock/gmock.h>

#include <map>

namespace strata::simulation {
namespace {

using residency::ExpertKey;
using residency::Proposal;
using residency::RoutingTrace;
using residency::SlotView;
using residency::TokenRole;
using testing::ElementsAre;

// One layer of four experts, one used per token: roles and picks as strings, "p" prompt, "g" generated.
RoutingTrace trace_of(const std::string& roles, const std::string& picks) {
  RoutingTrace trace{.layers = 1, .experts = 4, .used = 1, .conversations = {{}}};
  auto& conversation = trace.conversations.front();
  for (std::size_t i = 0; i < roles.size(); ++i) {
    conversation.tokens.push_back(0);
    conversation.domains.push_back(0);
    conversation.roles.push_back(roles[i] == 'g' ? TokenRole::kGenerated : TokenRole::kPrompt);
    conversation.picks.push_back(static_cast<uint16_t>(picks[i] - '0'));
  }
  return trace;
}

struct Look {
  uint64_t decode_tokens = 0, prefill_tokens = 0;
  uint64_t decode_uses = 0, prefill_uses = 0;
  uint32_t budget = 0;
  auto operator<=>(const Look&) const = default;
};

struct Script {
  std::map<std::size_t, std::vector<Proposal>> proposals;  // by look; 0: the fill
  std::vector<Look> looks;
  std::vector<std::vector<SlotView>> seen;
};

class ScriptedPolicy final : public residency::Policy {
 public:
  explicit ScriptedPolicy(Script& script) : script_(script) {}
  std::string_view name() const override { return "scripted"; }
  void observe(const residency::Usage& usage) override {
    Look look{usage.decode_tokens, usage.prefill_tokens, 0, 0, 0};
    for (const uint32_t uses : usage.decode_uses) look.decode_uses += uses;
    for (const uint32_t uses : usage.prefill_uses) look.prefill_uses += uses;
    script_.looks.push_back(look);
  }
  std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) override {
    script_.seen.emplace_back(slots.begin(), slots.end());
    if (!script_.looks.empty()) script_.looks.back().budget = budget;
    return script_.proposals[script_.looks.size()];
  }
  std::span<const uint32_t> quotas() const override { return {}; }
  Status control(residency::Control) override { return {}; }

 private:
  Script& script_;
};

Replay replay_of(const RoutingTrace& trace, Script& script, ReplayOptions options) {
  Replay replay(trace, std::make_unique<ScriptedPolicy>(script), options);
  replay.run(trace.conversations.front());
  return replay;
}

TEST(ReplayTest, CountsHitsOfWhatWasFilledBeforeTheFirstWindow) {
  const RoutingTrace trace = trace_of("pggg", "1012");
  Script script;
  script.proposals[0] = {{0, {0, 0}}, {1, {0, 1}}};
  const Replay replay = replay_of(trace, script, {.slots = 2});
  EXPECT_EQ(replay.result().decode_hits, 2U);
  EXPECT_EQ(replay.result().decode_uses, 3U);
  EXPECT_EQ(replay.result().prefill_hits, 1U);
  EXPECT_EQ(replay.result().prefill_uses, 1U);
  EXPECT_EQ(replay.result().exchanges, 0U) << "the fill is none";
  EXPECT_EQ(replay.result().windows, 4U);
  EXPECT_THAT(replay.hits_of_tokens(), ElementsAre(1, 1, 0));
}

TEST(ReplayTest, AnExchangeIsCompleteBeforeTheNextWindow) {
  const RoutingTrace trace = trace_of("gggg", "2220");
  Script script;
  script.proposals[0] = {{0, {0, 0}}};
  script.proposals[1] = {{0, {0, 2}}};
  const Replay replay = replay_of(trace, script, {.slots = 1, .expert_bytes = 100});
  EXPECT_THAT(replay.hits_of_tokens(), ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(replay.result().exchanges, 1U);
  EXPECT_EQ(replay.result().bytes, 100U);
}

TEST(ReplayTest, WhatTakesLongerIsNeitherTheOldNorTheNewMeanwhile) {
  const RoutingTrace trace = trace_of("ggggg", "20220");
  Script script;
  script.proposals[0] = {{0, {0, 0}}};
  script.proposals[1] = {{0, {0, 2}}};
  const Replay replay = replay_of(trace, script, {.slots = 1, .landing_windows = 2});
  EXPECT_THAT(replay.hits_of_tokens(), ElementsAre(0, 0, 0, 1, 0));
  EXPECT_EQ(script.seen[2][0].state, SlotView::State::kBusy);
  EXPECT_EQ(script.seen[2][0].key, (ExpertKey{0, 2}));
  EXPECT_EQ(script.seen[4][0].state, SlotView::State::kResident);
}

TEST(ReplayTest, APromptIsReadInChunksAndTold) {
  const RoutingTrace trace = trace_of("pppppgg", "0123012");
  Script script;
  replay_of(trace, script, {.slots = 1, .prefill_chunk_tokens = 3});
  ASSERT_EQ(script.looks.size(), 4U);
  EXPECT_EQ(script.looks[0].prefill_tokens, 3U);
  EXPECT_EQ(script.looks[0].prefill_uses, 3U);
  EXPECT_EQ(script.looks[1].prefill_tokens, 2U);
  EXPECT_EQ(script.looks[2].decode_tokens, 1U);
  EXPECT_EQ(script.looks[2].decode_uses, 1U);
  EXPECT_EQ(script.looks[2].prefill_uses, 0U);
}

TEST(ReplayTest, LooksComeAfterSoManyWindowsWithTheBudgetOfAll) {
  const RoutingTrace trace = trace_of("pgggggg", "0123012");
  Script script;
  replay_of(trace, script, {.slots = 4, .limits = {.exchanges_per_window = 0.5}, .windows_per_look = 3});
  ASSERT_EQ(script.looks.size(), 2U);
  EXPECT_EQ(script.looks[0].prefill_tokens, 1U);
  EXPECT_EQ(script.looks[0].decode_tokens, 2U);
  EXPECT_EQ(script.looks[0].budget, 1U);
  EXPECT_EQ(script.looks[1].budget, 2U) << "three halves, and the half that was left";
}

TEST(ReplayTest, BytesPerSecondLimitTheBudget) {
  const RoutingTrace trace = trace_of("gggggg", "012301");
  Script script;
  // 10 windows a second, 1000 bytes a second: one expert of 200 bytes in every other window.
  replay_of(
      trace, script,
      {.slots = 4, .limits = {.bytes_per_second = 1000}, .windows_per_second = 10, .expert_bytes = 200});
  EXPECT_EQ(script.looks[0].budget, 0U);
  EXPECT_EQ(script.looks[1].budget, 1U);
}

TEST(ReplayTest, AnotherConversationFindsTheArenaAsItWasLeft) {
  RoutingTrace trace = trace_of("gg", "22");
  Script script;
  script.proposals[0] = {{0, {0, 0}}};
  script.proposals[1] = {{0, {0, 2}}};
  Replay replay = replay_of(trace, script, {.slots = 1});
  replay.run(trace.conversations.front());
  EXPECT_THAT(replay.hits_of_tokens(), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(replay.result().decode_uses, 4U);
}

}  // namespace
}  // namespace strata::simulation
