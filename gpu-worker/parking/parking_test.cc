#include "gpu-worker/parking/parking_fixture.h"

namespace strata::gpu_worker {
namespace {

using snapshot::SnapshotKind;
using snapshot::TokenRange;

TEST_F(ParkingFixture, ParksAConversationThatHasBeenLeftAlone) {
  const Tokens prompt = made_up(100, 1), left = left_by(prompt, 5);
  answer(request(prompt, 5));
  now_ += kParkAfter - std::chrono::milliseconds(1);
  for (int i = 0; i < 20; ++i) boundary();
  EXPECT_EQ(store_.reserve_count(), 0u);
  ASSERT_TRUE(scheduler_.wakes_at());
  EXPECT_EQ(*scheduler_.wakes_at(), now_ + std::chrono::milliseconds(1));
  now_ += std::chrono::milliseconds(1);
  run_until([&] { return stored() == 1; });
  boundary();
  EXPECT_FALSE(scheduler_.wakes_at()) << "nothing is left to do";
  ASSERT_EQ(store_.reserves.size(), 1u);
  EXPECT_EQ(store_.reserves[0].tokens, left);
  EXPECT_EQ(store_.reserves[0].generated, (std::vector<TokenRange>{{100, 104}}));
  EXPECT_EQ(store_.reserves[0].kind, SnapshotKind::kEnd);
  EXPECT_EQ(store_.reserves[0].name_space, kOwn);
  EXPECT_GT(store_.reserves[0].cost_seconds, 0);
}

// What keeps small reads of an agent free of any price.
TEST_F(ParkingFixture, ALoopThatGoesOnSoonerParksNothing) {
  Tokens tokens = made_up(100, 1);
  for (int turn = 0; turn < 20; ++turn) {
    answer(request(tokens, 3));
    tokens = joined(left_by(tokens, 4), made_up(5, 1000 + turn * 10));
    now_ += kParkAfter - std::chrono::milliseconds(1);
    boundary();
  }
  EXPECT_EQ(store_.reserve_count(), 0u);
  EXPECT_EQ(scheduler_.transfers().park_bytes, 0u);
}

TEST_F(ParkingFixture, TheNextTurnCostsOnlyItsNewPages) {
  const Tokens first = made_up(3 * kPage, 1), left = left_by(first, 5);
  answer(request(first, 5));
  park(1);
  EXPECT_EQ(store_.counters().pages_copied, 3u) << "beside the tail";
  const Tokens second = joined(left, made_up(kPage, 5000));
  answer(request(second, 5));
  park(2);
  EXPECT_EQ(store_.counters().pages_shared, 3u);
  EXPECT_EQ(store_.counters().pages_copied, 3u + 1) << "the one that was a tail, beside the new one";
  EXPECT_EQ(store_.reserves[1].generated, (std::vector<TokenRange>{{192, 196}, {260, 264}}));
}

TEST_F(ParkingFixture, BringsAConversationBackExactlyAsItWas) {
  const Tokens prompt = made_up(150, 1), left = left_by(prompt, 6);
  answer(request(prompt, 6));
  park(1);
  fill_device();
  const Tokens next = joined(left, made_up(7, 7000));
  const auto heard = answer(parked(request(next, 8), left, {{150, 155}}));
  EXPECT_EQ(heard->tokens(), fake_answer(next, 8));
  EXPECT_EQ(heard->ended().source, ReuseSource::kRam);
  EXPECT_EQ(heard->ended().prompt_tokens_reused, left.size());
  EXPECT_EQ(heard->ended().prompt_tokens_computed, 7u);
  EXPECT_EQ(heard->ended().not_restored, "");
  EXPECT_EQ(cached(*heard), left.size());
  EXPECT_EQ(store_.open_count(), 0) << "it was let go";
  // And it is parked again, as what it is: its first answer was generated here, too.
  const uint64_t before = store_.counters().pages_shared;
  const auto again = store_.id_of(kOwn, left_by(next, 8), {{150, 155}, {162, 169}});
  now_ += kParkAfter;
  run_until([&] { return store_.contains(again); });
  EXPECT_EQ(store_.counters().pages_shared - before, 2u);
}

TEST_F(ParkingFixture, SaysThatAStateCameFromDisk) {
  const Tokens prompt = made_up(50, 1), left = left_by(prompt, 3);
  answer(request(prompt, 3));
  park(1);
  fill_device();
  store_.from_disk = true;
  const auto heard = answer(parked(request(joined(left, {9}), 3), left, {{50, 52}}));
  EXPECT_EQ(heard->ended().source, ReuseSource::kDisk);
}

TEST_F(ParkingFixture, TakesWhatTheDeviceHasIfThatIsAsMuch) {
  const Tokens prompt = made_up(50, 1), left = left_by(prompt, 3);
  answer(request(prompt, 3));
  park(1);
  const auto heard = answer(parked(request(joined(left, {9}), 3), left, {{50, 52}}));
  EXPECT_EQ(heard->ended().source, ReuseSource::kLive);
  EXPECT_EQ(heard->ended().not_restored, "");
  EXPECT_EQ(store_.counters().opened, 0u);
}

class ParkedAndGone : public ParkingFixture {
 protected:
  ParkedAndGone() {
    answer(request(prompt_, 4));
    park(1);
    fill_device();
    park(1 + kSequences);
  }
  // The request is answered all the same, from the first token.
  void expect_read_anew(const RecordingListener& heard, const std::string& why) {
    EXPECT_EQ(heard.tokens(), fake_answer(next_, 5));
    EXPECT_EQ(heard.ended().source, ReuseSource::kNone);
    EXPECT_EQ(heard.ended().prompt_tokens_computed, next_.size());
    EXPECT_NE(heard.ended().not_restored.find(why), std::string::npos) << heard.ended().not_restored;
    EXPECT_EQ(cached(heard), 0u);
    EXPECT_EQ(store_.open_count(), 0);
    EXPECT_EQ(device_.open_sequences(), kSequences) << "kept ones, and none that nobody knows of";
  }
  GenerationRequest next() { return parked(request(next_, 5), left_, generated_); }

  const Tokens prompt_ = made_up(100, 1), left_ = left_by(prompt_, 4), next_ = joined(left_, {5, 6, 7});
  const std::vector<TokenRange> generated_ = {{100, 103}};
};

TEST_F(ParkedAndGone, DamageInAPageIsNoticedBeforeAnythingUsesIt) {
  store_.damage(next().parked_id, 1);
  expect_read_anew(*answer(next()), "page 1 of snapshot");
}

TEST_F(ParkedAndGone, DamageInTheFixedPartIsNoticedBeforeAnythingUsesIt) {
  store_.damage(next().parked_id, std::nullopt);
  expect_read_anew(*answer(next()), "hash.0");
}

// The last page is held back until the first window has begun, which would never be if it waited for it.
TEST_F(ParkedAndGone, TheFirstMissingTokensAreReadWhilePagesAreOnTheirWay) {
  Meeting begun;
  device_.on_window = [&] { begun.reach(); };
  std::atomic<bool> met{false};
  device_.on_write_page = [&](uint32_t page) {
    if (page == 1) met = begun.wait();
  };
  const auto heard = answer(next());
  EXPECT_TRUE(met);
  EXPECT_EQ(heard->tokens(), fake_answer(next_, 5));
  EXPECT_EQ(heard->ended().prompt_tokens_reused, left_.size());
  EXPECT_EQ(cached(*heard), left_.size());
}

// Then the window's result is worth nothing, and nobody has heard of it.
TEST_F(ParkedAndGone, DamageThatIsFoundUnderAWindowCostsThatWindowOnly) {
  Meeting begun;
  device_.on_window = [&] { begun.reach(); };
  std::atomic<bool> met{false};
  device_.on_write_page = [&](uint32_t page) {
    if (page == 0) met = begun.wait();
  };
  store_.damage(next().parked_id, 1);
  const auto other = ask(request(made_up(20, 3000), 4));
  const std::size_t windows = device_.windows.size();
  const auto heard = answer(next());
  EXPECT_TRUE(met);
  expect_read_anew(*heard, "page 1 of snapshot");
  EXPECT_GT(device_.windows.size(), windows + 5);
  for (const GenerationEvent& event : heard->events()) {
    const auto* progress = std::get_if<PromptProgressed>(&event);
    EXPECT_EQ(progress == nullptr ? 0u : progress->cached, 0u);
  }
  EXPECT_EQ(other.heard->tokens(), fake_answer(made_up(20, 3000), 4)) << "whoever shared the window";
  EXPECT_EQ(scheduler_.transfers().restore_failures, 1u);
}

TEST_F(ParkedAndGone, OneThatIsCancelledWhilePagesAreOnTheirWayLeavesNoState) {
  Meeting cancelled;
  device_.on_write_page = [&](uint32_t page) {
    if (page == 1) cancelled.wait();
  };
  const Asked asked = ask(next());
  // Its fixed part is there, no window has run.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (scheduler_.idle()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    scheduler_.step(events_);
  }
  asked.generation->cancel();
  scheduler_.drop_cancelled(events_);
  deliver();
  EXPECT_EQ(asked.heard->status().code(), Code::kCancelled);
  cancelled.reach();
  const auto heard = answer(request(next_, 5));
  EXPECT_EQ(heard->tokens(), fake_answer(next_, 5));
  EXPECT_EQ(heard->ended().source, ReuseSource::kNone) << "nothing of it was kept";
  run_until([&] { return store_.open_count() == 0; });
}

TEST_F(ParkedAndGone, StoppingWhilePagesAreOnTheirWayEndsTheAnswer) {
  Meeting stopped;
  device_.on_write_page = [&](uint32_t page) {
    if (page == 1) stopped.wait();
  };
  const Asked asked = ask(next());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (scheduler_.idle()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    scheduler_.step(events_);
  }
  scheduler_.end_all(Status(Code::kUnavailable, "stopping"), events_);
  deliver();
  EXPECT_EQ(asked.heard->status().code(), Code::kUnavailable);
  stopped.reach();
}

TEST_F(ParkedAndGone, AStateOfOtherTokensIsRefused) {
  GenerationRequest wrong = next();
  std::swap(wrong.prompt[3], wrong.prompt[4]);
  const auto heard = answer(wrong);
  EXPECT_EQ(heard->tokens(), fake_answer(wrong.prompt, 5));
  EXPECT_NE(heard->ended().not_restored.find("is not the state behind"), std::string::npos);
}

TEST_F(ParkedAndGone, AnUnknownStateIsRefused) {
  GenerationRequest unknown = next();
  unknown.parked_id.low ^= 1;
  expect_read_anew(*answer(unknown), "snapshot");
}

TEST_F(ParkedAndGone, WithoutTheStoreThePromptIsRead) {
  store_.set_attachment(0);
  expect_read_anew(*answer(next()), "no store");
}

TEST_F(ParkedAndGone, TheStoreMayGoWhileAStateIsOpened) {
  store_.hold();
  const Asked asked = ask(next());
  for (int i = 0; i < 5; ++i) boundary();
  EXPECT_TRUE(asked.heard->events().empty());
  store_.set_attachment(0);
  store_.let_go();
  run_until([&] { return asked.heard->over(); });
  expect_read_anew(*asked.heard, "gone");
}

TEST_F(ParkedAndGone, OthersGoOnWhileAStateIsBroughtBack) {
  store_.hold();
  const Asked waiting = ask(next());
  const auto other = answer(request(made_up(20, 3000), 10));
  EXPECT_EQ(other->tokens(), fake_answer(made_up(20, 3000), 10));
  EXPECT_FALSE(waiting.heard->over());
  store_.let_go();
  run_until([&] { return waiting.heard->over(); });
  EXPECT_EQ(waiting.heard->ended().source, ReuseSource::kRam);
}

TEST_F(ParkedAndGone, OneThatIsCancelledMeanwhileLeavesNothingBehind) {
  store_.hold();
  const Asked asked = ask(next());
  boundary();
  asked.generation->cancel();
  boundary();
  ASSERT_TRUE(asked.heard->over());
  EXPECT_EQ(asked.heard->status().code(), Code::kCancelled);
  EXPECT_EQ(counters_.sequences_running, 0u);
  // Its place is free at once, for both.
  const Asked one = ask(request(made_up(9, 4000), 3)), two = ask(request(made_up(9, 5000), 3));
  run_until([&] { return one.heard->over() && two.heard->over(); });
  EXPECT_EQ(one.heard->tokens(), fake_answer(made_up(9, 4000), 3));
  store_.let_go();
  run_until([&] { return store_.counters().opened == 1 && store_.open_count() == 0; });
}

TEST_F(ParkedAndGone, StoppingEndsWhatArrives) {
  store_.hold();
  const Asked asked = ask(next());
  scheduler_.end_all(Status(Code::kUnavailable, "stopping"), events_);
  deliver();
  EXPECT_EQ(asked.heard->status().code(), Code::kUnavailable);
  store_.let_go();
}

// --- places

TEST_F(ParkingFixture, ANewcomerWaitsUntilTheOneInItsPlaceIsParked) {
  const Tokens first = made_up(100, 1), second = made_up(100, 2000);
  answer(request(first, 3));
  answer(request(second, 3));
  store_.hold();
  const Asked newcomer = ask(request(made_up(10, 4000), 3));
  run_until([&] { return store_.reserve_count() == 1; });  // at once, not after a while
  boundary();
  EXPECT_TRUE(newcomer.heard->events().empty());
  store_.let_go();
  run_until([&] { return newcomer.heard->over(); });
  EXPECT_EQ(newcomer.heard->tokens(), fake_answer(made_up(10, 4000), 3));
  run_until([&] { return stored() == 3; });  // more conversations than places: the others at once, too
  EXPECT_EQ(store_.reserves[0].tokens, left_by(first, 3)) << "the one used longest ago";
  // Nothing was lost.
  const Tokens left = left_by(first, 3), next = joined(left, {3, 3});
  const auto heard = answer(parked(request(next, 3), left, {{100, 102}}));
  EXPECT_EQ(heard->tokens(), fake_answer(next, 3));
  EXPECT_EQ(heard->ended().prompt_tokens_reused, left.size());
}

TEST_F(ParkingFixture, ButNotForEver) {
  answer(request(made_up(100, 1), 3));
  answer(request(made_up(100, 2000), 3));
  store_.hold();
  const Asked newcomer = ask(request(made_up(10, 4000), 3));
  boundary();
  ASSERT_TRUE(scheduler_.wakes_at());
  EXPECT_EQ(*scheduler_.wakes_at(), now_ + std::chrono::seconds(1));
  now_ += std::chrono::seconds(1);
  boundary();
  store_.let_go();  // the one that is being copied ends its copy at the next page
  run_until([&] { return newcomer.heard->over(); });
  EXPECT_EQ(newcomer.heard->tokens(), fake_answer(made_up(10, 4000), 3));
}

TEST_F(ParkingFixture, OnesThatAreParkedGoFirst) {
  const Tokens parked_one = made_up(100, 1), fresh = made_up(100, 2000);
  answer(request(fresh, 3));
  answer(request(parked_one, 3));
  park(2);
  answer(request(joined(left_by(fresh, 3), {1}), 3));
  answer(request(joined(left_by(parked_one, 3), {1}), 3));
  park(3);  // one of them at least
  run_until([&] { return stored() == 4; });
  boundary();
  const Tokens again = joined(left_by(fresh, 3), {1});
  answer(request(joined(left_by(again, 3), {2}), 3));  // not parked, and used last
  store_.hold();
  answer(request(made_up(10, 4000), 3));
  EXPECT_EQ(stored(), 4u) << "nobody had to wait";
  store_.let_go();
}

// Three conversations on two places: the fourth request pushes one out, and so does everyone after it.
TEST_F(ParkingFixture, WhileConversationsPushEachOtherOutTheyAreParkedAsSoonAsTheyEnd) {
  answer(request(made_up(100, 1), 3));
  answer(request(made_up(100, 2000), 3));
  for (int i = 0; i < 20; ++i) boundary();
  EXPECT_EQ(store_.reserve_count(), 0u) << "there was room for all so far";
  GenerationRequest newcomer = request(made_up(100, 4000), 3);
  newcomer.checkpoints = {{50, SnapshotKind::kTurn}};
  answer(newcomer);  // waits for the first to be parked
  run_until([&] { return stored() == 4; });
  boundary();
  EXPECT_FALSE(scheduler_.wakes_at());
  // So that the next one finds a place at once.
  const std::size_t reserved = store_.reserve_count();
  store_.hold();
  const Asked next = ask(request(made_up(10, 6000), 1));
  EXPECT_FALSE(scheduler_.idle()) << "it has begun";
  EXPECT_EQ(store_.reserve_count(), reserved);
  store_.let_go();
  run_until([&] { return next.heard->over(); });
}

TEST_F(ParkingFixture, ALoopBeginsToParkNothingAgainWhenOthersHaveGone) {
  fill_device();
  Tokens tokens = made_up(100, 1);
  std::size_t reserved = 0;
  for (int turn = 0; turn < 12; ++turn) {
    answer(request(tokens, 3));
    for (int i = 0; i < 5; ++i) boundary();
    run_until([&] { return !scheduler_.wakes_at() || *scheduler_.wakes_at() > now_; });
    if (turn == 6) reserved = store_.reserve_count();
    tokens = joined(left_by(tokens, 4), made_up(5, 1000 + turn * 10));
  }
  EXPECT_GT(reserved, 0u) << "the loop pushed another out when it began";
  EXPECT_EQ(store_.reserve_count(), reserved);
}

// Three slots. The first of these is the one that costs most to read again.
TEST_F(ParkingFixture, ACheckpointThatWouldBeLostBeforeItsAnswerEndsIsParked) {
  GenerationRequest what = request(made_up(500, 1), 40);
  what.checkpoints = {{300, SnapshotKind::kRoot},
                      {320, SnapshotKind::kTurn},
                      {340, SnapshotKind::kTurn},
                      {360, SnapshotKind::kTurn}};
  bool stored_beside = false;
  device_.on_window = [&] {
    if (device_.windows.size() != 12) return;  // the first of the answer
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (stored() < 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    stored_beside = stored() == 1;
  };
  const Asked asked = ask(what);
  run_until([&] { return asked.heard->over(); });
  EXPECT_TRUE(stored_beside) << "while the answer went on";
  EXPECT_EQ(store_.reserves[0].tokens, made_up(300, 1));
  EXPECT_EQ(store_.reserves[0].kind, SnapshotKind::kRoot);
  EXPECT_EQ(store_.reserve_count(), 1u) << "the others are not worth it";
  EXPECT_EQ(asked.heard->tokens(), fake_answer(made_up(500, 1), 40));
}

// Both have just ended, one of them with a checkpoint; nothing has been left alone long enough.
TEST_F(ParkingFixture, WhenTheEngineStopsWhatIsKeptIsParked) {
  GenerationRequest first = request(made_up(100, 1), 3);
  first.checkpoints = {{50, SnapshotKind::kTurn}};
  answer(first);
  const Asked cut_off = ask(request(made_up(80, 2000), 50));
  boundary();
  boundary();
  scheduler_.end_all(Status(Code::kUnavailable, "stopping"), events_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (scheduler_.park_rest(events_)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  deliver();
  EXPECT_EQ(stored(), 3u);
  EXPECT_EQ(cut_off.heard->status().code(), Code::kUnavailable);
  EXPECT_TRUE(store_.contains(store_.id_of(kOwn, left_by(made_up(100, 1), 3), {{100, 102}})));
  EXPECT_TRUE(store_.contains(store_.id_of(kOwn, made_up(50, 1), {})));
  EXPECT_FALSE(scheduler_.park_rest(events_)) << "nothing is left";
}

TEST_F(ParkingFixture, AStoreThatIsGoneDoesNotHoldUpTheEnd) {
  answer(request(made_up(100, 1), 3));
  store_.set_attachment(0);
  EXPECT_FALSE(scheduler_.park_rest(events_));
}

TEST_F(ParkingFixture, WithoutAStoreNobodyWaits) {
  store_.set_attachment(0);
  answer(request(made_up(100, 1), 3));
  answer(request(made_up(100, 2000), 3));
  answer(request(made_up(10, 4000), 3));
  now_ += kParkAfter;
  for (int i = 0; i < 5; ++i) boundary();
  EXPECT_EQ(store_.reserve_count(), 0u);
}

TEST_F(ParkingFixture, AStoreThatComesBackGetsWhatIsThere) {
  answer(request(made_up(100, 1), 3));
  park(1);
  store_.set_attachment(0);
  boundary();
  store_.set_attachment(1);
  run_until([&] { return store_.counters().already_here == 1; });
}

TEST_F(ParkingFixture, AConversationThatGoesOnWhileItIsCopiedStaysWhole) {
  const Tokens prompt = made_up(200, 1), left = left_by(prompt, 3);
  answer(request(prompt, 3));
  store_.hold();
  now_ += kParkAfter;
  run_until([&] { return store_.reserve_count() == 1; });
  const Tokens next = joined(left, made_up(30, 6000));
  const auto heard = answer(request(next, 20));
  EXPECT_EQ(heard->tokens(), fake_answer(next, 20));
  store_.let_go();
  run_until([&] { return stored() == 1; });
  fill_device();
  const Tokens other = joined(left, {42});
  EXPECT_EQ(answer(parked(request(other, 4), left, {{200, 202}}))->tokens(), fake_answer(other, 4));
}

// The pages behind the checkpoint would change under the copy.
TEST_F(ParkingFixture, AnEditedConversationWaitsUntilItsCopyHasStopped) {
  GenerationRequest first = request(made_up(200, 1), 3);
  first.checkpoints = {{150, SnapshotKind::kBeforeLastUser}};
  answer(first);
  store_.hold();
  now_ += kParkAfter;
  run_until([&] { return store_.reserve_count() == 1; });
  const Tokens edited = joined(made_up(150, 1), made_up(60, 8000));
  const Asked asked = ask(request(edited, 4));
  for (int i = 0; i < 3; ++i) boundary();
  EXPECT_FALSE(asked.heard->over());
  store_.let_go();
  run_until([&] { return asked.heard->over(); });
  EXPECT_EQ(asked.heard->tokens(), fake_answer(edited, 4));
  EXPECT_EQ(asked.heard->ended().prompt_tokens_reused, 150u);
  EXPECT_EQ(store_.abandoned, 1u);
}

TEST_F(ParkingFixture, CheckpointsAreParkedWithTheirKinds) {
  GenerationRequest what = request(made_up(200, 1), 3);
  what.checkpoints = {{64, SnapshotKind::kRoot}, {150, SnapshotKind::kBeforeLastUser}};
  what.shared_tokens = 64;
  answer(what);
  park(3);
  std::vector<std::pair<std::size_t, SnapshotKind>> parked_states;
  for (const StateToPark& each : store_.reserves) parked_states.emplace_back(each.tokens.size(), each.kind);
  std::ranges::sort(parked_states);
  EXPECT_EQ(parked_states,
            (std::vector<std::pair<std::size_t, SnapshotKind>>{
                {64, SnapshotKind::kRoot}, {150, SnapshotKind::kBeforeLastUser}, {202, SnapshotKind::kEnd}}));
  EXPECT_TRUE(store_.contains(store_.id_of(snapshot::shared_name_space(), made_up(64, 1), {})))
      << "a shared root belongs to everybody";
}

TEST_F(ParkingFixture, WhatIsTooLargeForTheStoreIsNotTriedAgain) {
  answer(request(made_up(kBudgetUnits * kPage, 1), 3));
  now_ += kParkAfter;
  run_until([&] { return store_.counters().refused_large == 1; });
  run_until([&] { return !scheduler_.wakes_at(); });
  now_ += std::chrono::hours(1);
  for (int i = 0; i < 50; ++i) boundary();
  EXPECT_EQ(store_.reserve_count(), 1u);
}

TEST_F(ParkingFixture, TellsWhatIsOnTheDevice) {
  GenerationRequest what = request(made_up(100, 1), 3);
  what.checkpoints = {{64, SnapshotKind::kRoot}};
  answer(what);
  boundary();
  using What = StateChange::What;
  ASSERT_EQ(told_.size(), 3u);
  EXPECT_EQ(told_[0].what, What::kAdded);
  EXPECT_EQ(told_[0].source, StateSource::kRunning);
  EXPECT_EQ(told_[0].tokens, made_up(64, 1));
  EXPECT_EQ(told_[0].kind, SnapshotKind::kRoot);
  EXPECT_EQ(told_[1].source, StateSource::kLive);
  EXPECT_EQ(told_[1].tokens, left_by(made_up(100, 1), 3));
  EXPECT_EQ(told_[1].generated, (std::vector<TokenRange>{{100, 102}}));
  EXPECT_EQ(told_[2].what, What::kSource);
  EXPECT_EQ(told_[2].source, StateSource::kCheckpoint);
  EXPECT_EQ(told_[2].id, told_[0].id);
  const uint64_t live = told_[1].id;
  told_.clear();
  ask(request(joined(left_by(made_up(100, 1), 3), {8}), 3));
  boundary();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[0].source, StateSource::kRunning);
  EXPECT_EQ(told_[1].what, What::kRemoved);
  EXPECT_EQ(told_[1].id, live);
  EXPECT_TRUE(told_[1].taken);
}

}  // namespace
}  // namespace strata::gpu_worker
