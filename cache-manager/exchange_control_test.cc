// An operator changes what is demanded while exchanges are made: what is in flight is called off where it is
// not wanted any more, and what was demanded outlives the gpu-worker.

#include "cache-manager/exchange_fixture.h"

namespace strata::cache_manager {
namespace {

using Control = ExchangeActorTest;

ControlChange pin(residency::ExpertKey key) {
  ControlChange change;
  change.pin = {key};
  return change;
}

TEST_F(Control, APinnedExpertComesAtOnceAndWithoutTokens) {
  ExchangeOptions with = options();
  with.rates = rates(0, 2);
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 5});
  script_.wanted = {{0, {1, 2}}};
  start(with);
  grant();
  EXPECT_TRUE(link_.retires.empty()) << "no exchange without a budget";
  const auto now = change(pin({1, 2}));
  ASSERT_TRUE(now) << now.error().message();
  EXPECT_EQ(now->layers[1].pinned, (std::vector<uint32_t>{2}));
  EXPECT_EQ(now->changed, (std::vector<std::string>{"pins"}));
  EXPECT_EQ(script_.demands.pins, (std::vector<ExpertKey>{{1, 2}}));
  ASSERT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(link_.retires[0].exchanges[0].incoming, (ExpertKey{1, 2}));
}

// Three exchanges at different steps: the one that is copied lands, the one that is being copied and the one
// whose copy has not begun are abandoned, and their slots are free for what is demanded now.
TEST_F(Control, ADemandForOtherExpertsCallsOffWhatIsNotCopiedYet) {
  ExchangeOptions with = options();
  with.rates = rates(8, 3);
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start(with);
  grant();
  answer_retire(std::vector<bool>{true, true, true});
  finish_copy();
  ASSERT_EQ(link_.lands.size(), 1u);
  script_.wanted = {{1, {1, 3}}};
  ASSERT_TRUE(change(pin({1, 3})));
  EXPECT_TRUE(link_.retires.empty()) << "the slot is in an exchange";
  finish_copy();
  ASSERT_EQ(link_.abandons.size(), 1u);
  EXPECT_EQ(link_.abandons[0].slots, (std::vector<uint32_t>{1}));
  finish_copy();
  EXPECT_EQ(link_.abandons.size(), 1u) << "one at a time";
  answer_abandon();
  ASSERT_EQ(link_.abandons.size(), 1u);
  EXPECT_EQ(link_.abandons[0].slots, (std::vector<uint32_t>{2}));
  ASSERT_EQ(link_.retires.size(), 1u) << "the first of the slots has found its expert";
  EXPECT_EQ(link_.retires[0].exchanges[0].slot, 1u);
  answer_abandon();
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "abandoned"), 2);
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 1);
}

TEST_F(Control, WhatIsCalledOffBeforeItIsReservedIsNeverCopied) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  script_.wanted.clear();
  ASSERT_TRUE(change(pin({1, 3})));
  answer_retire(std::vector<bool>{true});
  EXPECT_TRUE(copier_.orders.empty());
  ASSERT_EQ(link_.abandons.size(), 1u);
  answer_abandon(Status(Code::kResourceExhausted, "full"));
  EXPECT_TRUE(link_.abandons.empty());
  world_.advance(milliseconds(10));
  ASSERT_EQ(link_.abandons.size(), 1u) << "again when the inbox may have room";
  answer_abandon();
  EXPECT_EQ(actor_->status().in_flight, 0u);
  EXPECT_EQ(link_.detachments, 0);
}

TEST_F(Control, AnAbandonmentThatFailsEndsTheAttachment) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  ASSERT_TRUE(change(pin({1, 3})));
  answer_retire(std::vector<bool>{true});
  answer_abandon(Status(Code::kDeadlineExceeded, "no answer"));
  EXPECT_EQ(link_.detachments, 1);
}

TEST_F(Control, AnotherRateCallsNothingOff) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  ControlChange faster;
  faster.exchanges_per_window = config::Amount{config::Amount::Kind::kNumber, 100};
  const auto now = change(faster);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->limits.exchanges_per_window, 100);
  EXPECT_EQ(now->changed, (std::vector<std::string>{"rate"}));
  answer_retire(std::vector<bool>{true});
  finish_copy();
  EXPECT_TRUE(link_.abandons.empty());
  EXPECT_EQ(link_.lands.size(), 1u);
}

TEST_F(Control, NothingInFlightAnyMoreStopsTheExchanges) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true});
  ControlChange none;
  none.exchanges_in_flight = config::Count(0);
  ASSERT_TRUE(change(none));
  finish_copy();
  answer_abandon();
  EXPECT_EQ(actor_->status().in_flight, 0u);
  EXPECT_TRUE(link_.retires.empty());
  none.exchanges_in_flight = config::Count::automatic();
  const auto again = change(none);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->in_flight_max, 24u) << "three windows of eight";
  EXPECT_EQ(link_.retires.size(), 1u);
}

TEST_F(Control, AnotherPolicyKeepsWhatIsResident) {
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 5});
  start();
  grant();
  ControlChange other;
  other.policy = "other";
  const auto now = change(other);
  ASSERT_TRUE(now) << now.error().message();
  EXPECT_EQ(policies_made_, (std::vector<std::string>{"scripted", "other"}));
  EXPECT_EQ(now->policy, "other");
  EXPECT_EQ(now->changed, (std::vector<std::string>{"policy"}));
  EXPECT_EQ(now->layers[0].experts, (std::vector<uint32_t>{5}));
  EXPECT_EQ(script_.seen[0].key, (ExpertKey{0, 5}));
}

TEST_F(Control, TopicsPassFromOnePolicyToTheNextAndIntoTheProfile) {
  start();
  grant();
  script_.topics = {{.tokens = 7, .counts = std::vector<uint32_t>(kLayers * kExperts, 3)}};
  ControlChange other;
  other.policy = "other";
  ASSERT_TRUE(change(other));
  ASSERT_EQ(policy_options_.topics.size(), 1u);
  EXPECT_EQ(policy_options_.topics[0].tokens, 7u);
  script_.topics.clear();  // of a policy that learns none: what is known stays
  const std::string path = (folder_ / "saved.profile").string();
  actor::tell(actor_, ExchangeActor::SaveProfile{.path = path,
                                                 .only_if_changed = false,
                                                 .reply = [](const auto& saved) { EXPECT_TRUE(saved); }});
  world_.deliver_all();
  const auto saved = residency::read_profile(path, "fingerprint");
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(saved->topics.size(), 1u);
}

TEST_F(Control, WhatCannotBeHadChangesNothing) {
  start();
  ControlChange other;
  other.policy = "other";
  EXPECT_EQ(change(other).error().code(), Code::kUnavailable) << "no gpu-worker is there";
  grant();
  other.policy = "unknown";
  other.pin = {{1, 1}};
  EXPECT_EQ(change(other).error().code(), Code::kInvalidArgument);
  script_.control_answer = Status(Code::kInvalidArgument, "no such expert");
  EXPECT_EQ(change(pin({9, 9})).error().message(), "no such expert");
  ControlChange unpin;
  unpin.unpin = {{1, 1}};
  EXPECT_EQ(change(unpin).error().code(), Code::kNotFound);
  EXPECT_TRUE(residency().changed.empty());
  EXPECT_EQ(residency().policy, "scripted");
}

TEST_F(Control, DemandsOutliveTheGpuWorker) {
  start();
  grant();
  ControlChange all = pin({1, 2});
  all.policy = "other";
  all.quotas = std::vector<uint32_t>{1, 2};
  ASSERT_TRUE(change(all));
  end_link();
  world_.advance(milliseconds(200));
  script_.demands = {};
  grant(2);
  EXPECT_EQ(policies_made_.back(), "other");
  EXPECT_EQ(script_.demands.quotas, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(script_.demands.pins, (std::vector<ExpertKey>{{1, 2}}));
  EXPECT_EQ(residency().changed, (std::vector<std::string>{"policy", "quotas", "pins"}));
}

TEST_F(Control, DemandsThatNoLongerFitAreForgottenWithTheGpuWorker) {
  start();
  grant();
  ASSERT_TRUE(change(pin({1, 2})));
  end_link();
  world_.advance(milliseconds(200));
  script_.control_answer = Status(Code::kInvalidArgument, "fewer slots than before");
  grant(2);
  EXPECT_TRUE(actor_->status().attached);
  EXPECT_TRUE(residency().changed.empty());
}

// --- the end

TEST_F(Control, StopLandsWhatIsCopiedAndAbandonsTheRest) {
  ExchangeOptions with = options();
  with.rates = rates(8, 3);
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start(with);
  grant();
  answer_retire(std::vector<bool>{true, true, true});
  finish_copy();
  bool stopped = false;
  actor::tell(actor_, ExchangeActor::Stop{[&] { stopped = true; }});
  world_.deliver_all();
  finish_copy();
  finish_copy();
  answer_land();
  EXPECT_FALSE(stopped);
  answer_abandon();
  answer_abandon();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(link_.retires.empty()) << "nothing new begins";
  memory_.decode(0, 0, 1, 1);
  look();
  EXPECT_TRUE(link_.retires.empty());
}

TEST_F(Control, StopAnswersAtOnceWhenNothingIsInFlightAndWhenTheGpuWorkerGoes) {
  script_.wanted = {{0, {0, 0}}};
  start();
  int stopped = 0;
  actor::tell(actor_, ExchangeActor::Stop{[&] { ++stopped; }});
  world_.deliver_all();
  EXPECT_EQ(stopped, 1);

  start();
  grant();
  actor::tell(actor_, ExchangeActor::Stop{[&] { ++stopped; }});
  world_.deliver_all();
  EXPECT_EQ(stopped, 1) << "a Retire is on its way";
  end_link();
  EXPECT_EQ(stopped, 2);
  world_.advance(milliseconds(1000));
  EXPECT_EQ(link_.attachments, 2) << "no other attachment after the end";
}

}  // namespace
}  // namespace strata::cache_manager
