// The way of an exchange, what is counted and learned, and what is bounded. The steps at which either side
// may crash: exchange_crash_test.cc.

#include "cache-manager/exchange_fixture.h"

namespace strata::cache_manager {
namespace {

TEST_F(ExchangeActorTest, TakesAnExpertThroughTheFourSteps) {
  script_.wanted = {{0, {1, 4}}};
  start();
  EXPECT_TRUE(link_.retires.empty()) << "nothing before the grant";
  grant(7);
  ASSERT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(link_.retires[0].epoch, 7u);
  ASSERT_EQ(link_.retires[0].exchanges.size(), 1u);
  EXPECT_EQ(link_.retires[0].exchanges[0].incoming, (ExpertKey{1, 4}));
  EXPECT_TRUE(copier_.orders.empty()) << "not before the slot is reserved";
  answer_retire(std::vector<bool>{true});
  ASSERT_EQ(copier_.orders.size(), 1u);
  EXPECT_TRUE(link_.lands.empty()) << "not before the bytes are there";
  finish_copy();
  ASSERT_EQ(link_.lands.size(), 1u);
  EXPECT_EQ(link_.lands[0].epoch, 7u);
  EXPECT_EQ(link_.lands[0].slots, std::vector<uint32_t>{0});
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 0) << "not before it is published";
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 1);
  EXPECT_EQ(metric("strata_expert_exchange_bytes_total"), 100);
  EXPECT_EQ(actor_->status().slots_used, 1u);
}

TEST_F(ExchangeActorTest, FillsFreeSlotsWithoutPauseAndWithoutTokens) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {1, 0}}};
  start();
  grant();
  ASSERT_EQ(link_.retires[0].exchanges.size(), 2u) << "as many as may be in flight";
  answer_retire(std::vector<bool>{true, true});
  finish_copy();
  finish_copy();
  answer_land();
  ASSERT_EQ(link_.retires.size(), 1u) << "the next one without waiting for a look";
  EXPECT_EQ(link_.retires[0].exchanges[0].slot, 2u);
}

TEST_F(ExchangeActorTest, ExchangesOnlyWhenTokensWereMade) {
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 5});
  script_.wanted = {{0, {1, 1}}};
  start();
  grant();
  for (int i = 0; i < 5; ++i) look();
  EXPECT_TRUE(link_.retires.empty()) << "nobody uses it, nothing moves";
  EXPECT_EQ(script_.seen[0].key, (ExpertKey{0, 5})) << "what is resident at the start";
  memory_.decode(1, 1, 3, 2);
  look();
  EXPECT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(script_.tokens, 2u);
  EXPECT_EQ(script_.uses[kExperts + 1], 3u);
}

TEST_F(ExchangeActorTest, CountsUsesFromWhereTheCountersStoodAtTheGrant) {
  memory_.decode(0, 2, 1000, 500);
  start();
  grant();
  look();
  EXPECT_EQ(script_.tokens, 0u);
  memory_.decode(0, 2, 4, 1);
  look();
  EXPECT_EQ(script_.tokens, 1u);
  EXPECT_EQ(script_.uses[2], 4u);
}

TEST_F(ExchangeActorTest, UsesOfAnUnfinishedWindowWaitForItsTokens) {
  start();
  grant();
  memory_.usage.decode(0, 2) += 4;
  look();
  EXPECT_EQ(script_.tokens, 0u);
  memory_.decode(0, 2, 3, 1);
  look();
  EXPECT_EQ(script_.tokens, 1u);
  EXPECT_EQ(script_.uses[2], 7u);
}

TEST_F(ExchangeActorTest, NeverHasMoreInFlightThanAllowed) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true, true});
  finish_copy();
  for (int i = 0; i < 3; ++i) {
    memory_.decode(0, 0, 1, 1);
    look();
  }
  EXPECT_TRUE(link_.retires.empty());
  EXPECT_EQ(actor_->status().in_flight, 2u);
}

TEST_F(ExchangeActorTest, LandsTogetherWhatWasCopiedMeanwhile) {
  ExchangeOptions with = options();
  with.rates = rates(8, 3);
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start(with);
  grant();
  answer_retire(std::vector<bool>{true, true, true});
  finish_copy();
  finish_copy();
  finish_copy();
  ASSERT_EQ(link_.lands.size(), 1u) << "one call at a time";
  EXPECT_EQ(link_.lands[0].slots, std::vector<uint32_t>{0});
  answer_land();
  ASSERT_EQ(link_.lands.size(), 1u);
  EXPECT_EQ(link_.lands[0].slots, (std::vector<uint32_t>{1, 2}));
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 3);
}

TEST_F(ExchangeActorTest, DropsARefusedExchangeAndReadsItsSlotAgain) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}};
  start();
  grant();
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 3});
  answer_retire(std::vector<bool>{false, true});
  ASSERT_EQ(copier_.orders.size(), 1u);
  EXPECT_EQ(copier_.orders[0].exchange.slot, 1u);
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "refused"), 1);
  script_.wanted.clear();
  memory_.decode(0, 0, 1, 1);
  look();
  EXPECT_EQ(script_.seen[0].key, (ExpertKey{0, 3}));
}

TEST_F(ExchangeActorTest, TriesAgainWhenTheGpuWorkersInboxIsFull) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(fail(Code::kResourceExhausted, "full"));
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "busy"), 1);
  EXPECT_TRUE(link_.retires.empty()) << "not at once";
  world_.advance(milliseconds(10));
  ASSERT_EQ(link_.retires.size(), 1u);
  answer_retire(std::vector<bool>{true});
  finish_copy();
  answer_land(Status(Code::kResourceExhausted, "full"));
  EXPECT_TRUE(link_.lands.empty());
  world_.advance(milliseconds(10));
  ASSERT_EQ(link_.lands.size(), 1u) << "the copy is not thrown away";
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 1);
  EXPECT_EQ(link_.detachments, 0);
}

TEST_F(ExchangeActorTest, GivesUpTheAttachmentWhenTheTwoSidesMayDisagree) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(fail(Code::kDeadlineExceeded, "no answer: it may or may not have been applied"));
  EXPECT_EQ(link_.detachments, 1);
  end_link();
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "detached"), 1);
  EXPECT_FALSE(actor_->status().attached);
}

// A look that takes 2 ms is followed by a pause of ten times that; windows meanwhile are seen together.
TEST_F(ExchangeActorTest, LooksLessOftenWhereALookTakesLong) {
  start();
  grant();
  script_.on_observe = [this] { world_.spend(milliseconds(2)); };
  memory_.decode(0, 0, 1, 1);
  look();
  EXPECT_EQ(script_.tokens, 1u);
  for (int window = 0; window < 3; ++window) {
    memory_.decode(0, 0, 1, 1);
    look();
  }
  EXPECT_EQ(script_.tokens, 1u);
  world_.advance(milliseconds(17));
  EXPECT_EQ(script_.tokens, 1u);
  world_.advance(milliseconds(2));
  EXPECT_EQ(script_.tokens, 4u) << "without another window";
  EXPECT_EQ(script_.uses[0], 3u);
}

TEST_F(ExchangeActorTest, AttachesAgainAfterThePauseAndReadsTheNewTable) {
  start();
  EXPECT_EQ(link_.attachments, 1);
  grant();
  end_link();
  EXPECT_EQ(link_.attachments, 1);
  world_.advance(milliseconds(200));
  EXPECT_EQ(link_.attachments, 2);
  memory_.table.set_slot(2, {shm::SlotState::kResident, 1, 3});
  grant(2);
  EXPECT_TRUE(actor_->status().attached);
  EXPECT_EQ(actor_->status().slots_used, 1u);
}

TEST_F(ExchangeActorTest, WithNothingAllowedInFlightResidencyStaysAsItIs) {
  ExchangeOptions with = options();
  with.rates = rates(8, 0);
  script_.wanted = {{0, {0, 0}}};
  start(with);
  grant();
  memory_.decode(0, 0, 9, 9);
  look();
  EXPECT_TRUE(link_.retires.empty());
  EXPECT_EQ(script_.tokens, 9u) << "it learns all the same";
}

TEST_F(ExchangeActorTest, TellsThePolicyHowManyExpertsEachLayerHas) {
  start();
  grant();
  EXPECT_EQ(policy_options_.experts_of_layer, (std::vector<uint32_t>{kExperts, kExperts - 1}));
  EXPECT_EQ(policy_options_.shape.experts, kExperts);
}

// With a real policy: the widest layer's number of experts is no reason to ask for those that a narrower one
// does not have, which would be refused for ever and use up the budget.
TEST_F(ExchangeActorTest, FillsANarrowLayerWithTheExpertsItHas) {
  ExchangeOptions with = options();
  with.policy = "lfu-decay";
  with.make_policy = residency::make_policy;
  with.experts_per_layer = {kExperts, 1};
  with.rates = rates(8, 8);
  start(with);
  grant();
  std::vector<ExpertKey> asked;
  for (const SlotExchange& exchange : link_.retires.at(0).exchanges) asked.push_back(exchange.incoming);
  EXPECT_EQ(asked.size(), kSlots);
  EXPECT_EQ(std::ranges::count(asked, 1u, &ExpertKey::layer), 1);
  EXPECT_EQ(std::ranges::count(asked, ExpertKey{1, 0}), 1);
}

TEST_F(ExchangeActorTest, FillsByTheLearnedProfileUnlessToldOtherwise) {
  start();
  grant();
  EXPECT_TRUE(policy_options_.profile.empty()) << "nothing is known";
  memory_.decode(0, 1, 8, 4);
  look();
  end_link();
  world_.advance(milliseconds(200));
  grant(2);
  ASSERT_EQ(policy_options_.profile.size(), kLayers * kExperts);
  EXPECT_EQ(policy_options_.profile[1], 1.0f);
  EXPECT_EQ(policy_options_.slots, kSlots);
}

TEST_F(ExchangeActorTest, SavesWhatItLearnedWhenThereIsSomethingNew) {
  start();
  grant();
  std::filesystem::path path = folder_ / "learned.profile";
  world_.advance(milliseconds(30000));
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing was learned";
  memory_.decode(1, 2, 6, 3);
  look();
  world_.advance(milliseconds(30000));
  auto saved = residency::read_profile(path.string(), "fingerprint");
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(saved->counts[kExperts + 2], 6u);
  EXPECT_EQ(saved->tokens, 3u);
}

TEST_F(ExchangeActorTest, AnswersQuestionsAboutResidency) {
  memory_.table.set_slot(0, {shm::SlotState::kResident, 1, 4});
  memory_.table.set_slot(1, {shm::SlotState::kResident, 1, 2});
  start();
  EXPECT_EQ(residency().layers.size(), kLayers) << "also before a gpu-worker is there";
  grant();
  memory_.decode(0, 3, 5, 2);
  memory_.usage.prefill(1, 1) += 7;
  memory_.usage.layer(1).decode_hits = 3;
  memory_.usage.layer(1).prefill_misses = 4;
  const ResidencySummary summary = residency();
  EXPECT_EQ(summary.layers[1].experts, (std::vector<uint32_t>{2, 4}));
  EXPECT_EQ(summary.layers[0].quota, 2u);
  EXPECT_EQ(summary.layers[1].expert_count, kExperts - 1);
  EXPECT_EQ(summary.layers[1].quota, 1u);
  EXPECT_EQ(summary.layers[1].decode_hits, 3u);
  EXPECT_EQ(summary.layers[1].prefill_misses, 4u);
  EXPECT_EQ(summary.slots_used, 2u);
}

TEST_F(ExchangeActorTest, TellsThePolicyPromptTokensAsSuchAndLearnsOnlyGeneratedOnes) {
  start();
  grant();
  memory_.prefill(0, 2, 30, 12);
  look();
  EXPECT_EQ(script_.prefill_tokens, 12u);
  EXPECT_EQ(script_.tokens, 0u);
  EXPECT_EQ(script_.prefill_uses[2], 30u);
  EXPECT_TRUE(script_.uses.empty());
  memory_.decode(0, 2, 6, 1);
  look();
  EXPECT_EQ(script_.uses[2], 6u);
  EXPECT_TRUE(script_.prefill_uses.empty());
  end_link();
  world_.advance(milliseconds(200));
  grant(2);
  EXPECT_EQ(policy_options_.profile[2], 1.0f) << "what one generated token used";
}

// --- what is bounded

// Every slot is resident, so that only exchanges are proposed.
class ExchangeBudgetTest : public ExchangeActorTest {
 protected:
  ExchangeBudgetTest() {
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      memory_.table.set_slot(slot, {shm::SlotState::kResident, 0, static_cast<uint16_t>(slot)});
    script_.wanted = {{0, {0, 3}}, {1, {0, 4}}, {2, {0, 5}}};
  }
  void window() {
    memory_.decode(0, 0, 1, 1);
    look();
  }
  // The exchanges that were begun by the last window.
  std::size_t begun() {
    if (link_.retires.empty()) return 0;
    const std::size_t count = link_.retires.front().exchanges.size();
    answer_retire(std::vector<bool>(count, true));
    return count;
  }
};

TEST_F(ExchangeBudgetTest, BeginsSoManyExchangesPerWindowAndNoneBetweenWindows) {
  ExchangeOptions with = options();
  with.rates = rates(1, 3);
  start(with);
  grant();
  EXPECT_EQ(begun(), 0u) << "nothing has been used yet";
  window();
  EXPECT_EQ(begun(), 1u);
  look();
  finish_copy();
  answer_land();
  EXPECT_EQ(begun(), 0u) << "no window has finished";
  window();
  EXPECT_EQ(begun(), 1u);
}

TEST_F(ExchangeBudgetTest, AFractionOfAnExchangePerWindowIsOneInSomeWindows) {
  ExchangeOptions with = options();
  with.rates = {.exchanges_per_window = {config::Amount::Kind::kPercent, 25},  // of two layers: a half
                .copy_budget = {},
                .exchanges_in_flight = 3};
  start(with);
  grant();
  std::vector<std::size_t> each;
  for (int i = 0; i < 4; ++i) {
    window();
    each.push_back(begun());
  }
  EXPECT_EQ(each, (std::vector<std::size_t>{0, 1, 0, 1}));
}

TEST_F(ExchangeBudgetTest, SeveralWindowsThatWereSeenTogetherCountEach) {
  ExchangeOptions with = options();
  with.rates = rates(1, 3);
  start(with);
  grant();
  memory_.decode(0, 0, 1, 1);
  memory_.decode(0, 0, 1, 1);
  look();
  EXPECT_EQ(begun(), 2u);
}

TEST_F(ExchangeBudgetTest, KeepsToTheBytesPerSecond) {
  ExchangeOptions with = options();
  with.rates.copy_budget = config::Size::of(1000);  // ten experts of the larger layer a second
  with.rates.exchanges_in_flight = 3;
  start(with);
  grant();
  world_.advance(milliseconds(50));
  window();
  EXPECT_EQ(begun(), 0u);
  world_.advance(milliseconds(50));
  window();
  EXPECT_EQ(begun(), 1u);
}

TEST_F(ExchangeBudgetTest, AWindowThatFinishesWhileARetireIsOnItsWayIsNotForgotten) {
  ExchangeOptions with = options();
  with.rates = rates(1, 3);
  start(with);
  grant();
  window();
  ASSERT_EQ(link_.retires.size(), 1u);
  window();
  EXPECT_EQ(link_.retires.size(), 1u) << "one at a time";
  answer_retire(std::vector<bool>{true});
  EXPECT_EQ(link_.retires.size(), 1u) << "the next one without waiting for another window";
}

TEST_F(ExchangeBudgetTest, AnIdleSystemIsAskedNothing) {
  start();
  grant();
  window();
  begun();
  const uint32_t looks = static_cast<uint32_t>(script_.tokens);
  world_.advance(milliseconds(20000));
  EXPECT_EQ(script_.tokens, looks);
  EXPECT_TRUE(link_.retires.empty());
}

TEST_F(ExchangeActorTest, FreeSlotsWaitForNoBudget) {
  ExchangeOptions with = options();
  with.rates = rates(0, 3);
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {1, 0}}};
  start(with);
  grant();
  ASSERT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(link_.retires[0].exchanges.size(), 3u);
}

TEST_F(ExchangeActorTest, LandsWithTheChecksumsOfTheCopies) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true});
  finish_copy(0x1234);
  ASSERT_EQ(link_.lands.size(), 1u);
  EXPECT_EQ(link_.lands[0].checksums, (std::vector<std::optional<uint64_t>>{0x1234}));
}

TEST_F(ExchangeActorTest, GivesUpTheAttachmentWhenASlotHoldsSomethingElse) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true});
  finish_copy(0x1234);
  answer_land(Status(Code::kDataLoss, "slot 0 does not hold what was copied"));
  EXPECT_EQ(link_.detachments, 1);
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 0);
}

TEST_F(ExchangeActorTest, CountsExchangesAndSlotsOfEachLayer) {
  script_.wanted = {{0, {1, 4}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true});
  finish_copy();
  answer_land();
  EXPECT_EQ(metric("strata_expert_layer_exchanges_total", "0"), 0);
  EXPECT_EQ(metric("strata_expert_layer_exchanges_total", "1"), 1);
  EXPECT_EQ(gauge("strata_expert_layer_slots", "0"), 2);
  EXPECT_EQ(gauge("strata_expert_layer_slots_used", "1"), 1);
  end_link();
  EXPECT_EQ(gauge("strata_expert_layer_slots_used", "1"), 0) << "nobody knows";
  EXPECT_EQ(gauge("strata_expert_layer_slots", "0"), 2);
}

}  // namespace
}  // namespace strata::cache_manager
