// What stays on the device and who may go on from it. The fake device's state is the tokens it was fed, and
// it checks every restored state against them.

#include "gpu-worker/kept_sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpu-worker/fake_device.h"

namespace strata::gpu_worker {
namespace {

using snapshot::SnapshotKind;
using Tokens = std::vector<int32_t>;

constexpr snapshot::Hash128 kOwn{.high = 1, .low = 1}, kOther{.high = 1, .low = 2};

Tokens made_up(uint32_t count, int32_t first) {
  Tokens tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<int32_t>(i));
  return tokens;
}
Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class KeptSequencesTest : public testing::Test {
 protected:
  KeptSequences::Begun begin(const Tokens& tokens, const snapshot::Hash128& name_space = kOwn,
                             uint32_t shared = 0) {
    auto begun = sequences_.begin(tokens, name_space, shared);
    EXPECT_TRUE(begun) << begun.error().message();
    return begun.value_or(KeptSequences::Begun{});
  }
  // Reads what is not reused, with checkpoints on the way, and gives the sequence back.
  uint32_t read(const Tokens& tokens, const std::vector<CheckpointWish>& wishes = {},
                const snapshot::Hash128& name_space = kOwn, uint32_t shared = 0) {
    const KeptSequences::Begun begun = begin(tokens, name_space, shared);
    feed(begun, tokens, wishes);
    sequences_.keep(begun.sequence, tokens, static_cast<uint32_t>(tokens.size()));
    return begun.reused;
  }
  void feed(const KeptSequences::Begun& begun, const Tokens& tokens,
            const std::vector<CheckpointWish>& wishes = {}) {
    for (uint32_t at = begun.reused; at < tokens.size(); ++at) {
      const DeviceRow row{.sequence = begun.sequence, .token = tokens[at], .is_prompt = true, .sample = {}};
      std::vector<RowChoice> choices;
      ASSERT_TRUE(device_.run_window({&row, 1}, choices).ok());
      for (const CheckpointWish& wish : wishes) {
        if (wish.tokens != at + 1) continue;
        const auto slot = sequences_.checkpoint(begun.sequence, std::span(tokens).first(at + 1), wish.kind);
        if (slot) device_.capture(begun.sequence, *slot);
      }
    }
    ASSERT_EQ(device_.fed(begun.sequence), tokens) << "the device has read exactly these";
  }

  FakeDevice device_{3};
  KeptSequences sequences_{device_};
};

TEST_F(KeptSequencesTest, GoesOnWithAConversation) {
  const Tokens first = made_up(20, 1), second = joined(first, made_up(5, 500));
  EXPECT_EQ(read(first), 0U);
  EXPECT_EQ(read(second), 20U);
  EXPECT_EQ(sequences_.kept(), 1U);
}

// A stop string may end an answer some tokens before what was generated.
TEST_F(KeptSequencesTest, KeepsTheLastTwoStatesOfAnAnswer) {
  const Tokens prompt = made_up(10, 1), whole = joined(prompt, made_up(19, 500));
  const KeptSequences::Begun begun = begin(prompt);
  for (uint32_t at = 0; at < whole.size(); ++at) {
    const DeviceRow row{.sequence = begun.sequence, .token = whole[at], .is_prompt = at < 10, .sample = {}};
    std::vector<RowChoice> choices;
    ASSERT_TRUE(device_.run_window({&row, 1}, choices).ok());
    if (at >= 10 && (at + 1 - 10) % 4 == 0)
      sequences_.checkpoint_answer(begun.sequence, std::span(whole).first(at + 1));
  }
  EXPECT_EQ(sequences_.checkpoints(), 2U) << "behind 12 and 16 tokens of the answer";
  sequences_.keep(begun.sequence, whole, 10);
  const Tokens shown(whole.begin(), whole.begin() + 10 + 17), next = joined(shown, made_up(5, 900));
  EXPECT_EQ(read(next), 26U);
  EXPECT_EQ(read(joined(Tokens(whole.begin(), whole.begin() + 10 + 13), made_up(5, 700))), 22U);
}

// The index keeps one tree per namespace: it cannot place a state without it, also not one that it knows.
TEST_F(KeptSequencesTest, SaysWhoseAStateIsWheneverItSaysAnythingOfIt) {
  const Tokens tokens = made_up(20, 1);
  const KeptSequences::Begun begun = begin(tokens, kOwn, 10);
  feed(begun, tokens, {{8, SnapshotKind::kRoot}});
  ASSERT_EQ(sequences_.take_changes().size(), 1U);
  sequences_.keep(begun.sequence, tokens, 20);
  const std::vector<StateChange> changes = sequences_.take_changes();
  ASSERT_EQ(changes.size(), 2U);
  const auto moved = std::ranges::find(changes, StateChange::What::kSource, &StateChange::what);
  ASSERT_NE(moved, changes.end()) << "the checkpoint is one of an idle sequence now";
  EXPECT_EQ(moved->source, StateSource::kCheckpoint);
  EXPECT_EQ(moved->name_space, kOwn);
  EXPECT_TRUE(moved->shared);
  EXPECT_TRUE(moved->tokens.empty()) << "those are known";
}

// One token must be left to read, whose row says what comes next.
TEST_F(KeptSequencesTest, ReusesAllButTheLastTokenAtMost) {
  const Tokens tokens = made_up(20, 1);
  read(tokens, {{1, SnapshotKind::kTurn}, {18, SnapshotKind::kTurn}, {19, SnapshotKind::kTurn}});
  EXPECT_EQ(read(tokens), 19U) << "all is known, the state behind all but one is taken";
  EXPECT_EQ(read({tokens.begin(), tokens.begin() + 19}), 18U);
  EXPECT_EQ(read({tokens.begin(), tokens.begin() + 2}), 1U);
  EXPECT_EQ(read({tokens.begin(), tokens.begin() + 1}), 0U);
}

TEST_F(KeptSequencesTest, RewindsToTheNearestCheckpointWhenAMessageIsEdited) {
  const Tokens head = made_up(30, 1);
  read(joined(head, made_up(10, 100)), {{10, SnapshotKind::kRoot}, {30, SnapshotKind::kTurn}});
  EXPECT_EQ(read(joined(head, made_up(10, 200))), 30U);
  EXPECT_EQ(sequences_.kept(), 1U) << "the edited branch takes the place of the other";
  EXPECT_EQ(read(joined(made_up(20, 1), made_up(10, 300))), 10U) << "of the root";
  EXPECT_EQ(sequences_.kept(), 2U) << "a root is copied";
  EXPECT_EQ(read(joined(head, made_up(10, 200))), 30U) << "which leaves the first as it was";
}

TEST_F(KeptSequencesTest, CopiesFromASequenceThatRuns) {
  const Tokens head = made_up(70, 1), first = joined(head, made_up(10, 100)),
               second = joined(head, made_up(10, 200));
  const KeptSequences::Begun running = begin(first);
  feed(running, first, {{70, SnapshotKind::kTurn}});
  EXPECT_EQ(read(second), 70U);
  EXPECT_EQ(device_.fed(running.sequence), first);
}

TEST_F(KeptSequencesTest, GivesTheOldestKeptOneUpForANewOne) {
  for (int32_t i = 1; i <= 4; ++i) read(made_up(10, 100 * i));
  EXPECT_EQ(sequences_.kept(), 3U);
  EXPECT_EQ(read(joined(made_up(10, 400), {1})), 10U);
  EXPECT_EQ(read(joined(made_up(10, 100), {1})), 0U) << "this one went";
}

TEST_F(KeptSequencesTest, RefusesOneTooManyThatRun) {
  for (int32_t i = 1; i <= 3; ++i) begin(made_up(10, 100 * i));
  EXPECT_EQ(sequences_.begin(made_up(10, 900), kOwn, 0).error().code(), Code::kResourceExhausted);
}

// Also when its beginning is known, but only in a sequence that runs.
TEST_F(KeptSequencesTest, RefusesACopyForWhichThereIsNoPlace) {
  const Tokens first = made_up(10, 100);
  feed(begin(first), first, {{5, SnapshotKind::kRoot}});
  for (int32_t i = 2; i <= 3; ++i) begin(made_up(10, 100 * i));
  EXPECT_EQ(sequences_.begin(first, kOwn, 0).error().code(), Code::kResourceExhausted);
}

TEST_F(KeptSequencesTest, RewindsARootWhenThereIsNoPlaceForACopy) {
  const Tokens first = made_up(10, 100);
  read(first, {{5, SnapshotKind::kRoot}});
  for (int32_t i = 2; i <= 3; ++i) begin(made_up(10, 100 * i));
  EXPECT_EQ(read(joined(made_up(5, 100), {7, 8})), 5U);
}

TEST_F(KeptSequencesTest, KeepsNamespacesApart) {
  const Tokens tokens = made_up(20, 1), more = joined(tokens, {900, 901});
  read(tokens, {{8, SnapshotKind::kRoot}, {15, SnapshotKind::kTurn}}, kOwn);
  EXPECT_EQ(read(more, {}, kOther), 0U);
  read(tokens, {{8, SnapshotKind::kRoot}, {15, SnapshotKind::kTurn}}, kOwn, 8);
  EXPECT_EQ(read(more, {}, kOther), 8U) << "a root that was declared shared";
  EXPECT_EQ(read(more, {}, kOwn), 20U);
}

TEST_F(KeptSequencesTest, ForgetsASequenceOfWhichNothingIsKnown) {
  const Tokens tokens = made_up(20, 1);
  const KeptSequences::Begun begun = begin(tokens);
  feed(begun, tokens, {{8, SnapshotKind::kRoot}});
  sequences_.close(begun.sequence);
  EXPECT_EQ(sequences_.checkpoints(), 0U);
  EXPECT_EQ(read(tokens), 0U);
}

// Three slots. What is dropped is what costs least to read again.
TEST_F(KeptSequencesTest, DropsTheLeastValuableCheckpoint) {
  const Tokens tokens = made_up(60, 1);
  read(tokens, {{30, SnapshotKind::kRoot},
                {32, SnapshotKind::kTurn},
                {50, SnapshotKind::kTurn},
                {55, SnapshotKind::kTurn}});
  EXPECT_EQ(sequences_.checkpoints(), 3U);
  EXPECT_EQ(read(joined(made_up(34, 1), {900})), 30U) << "32 went: 30 is near";
}

// Conversations that go on, are edited, and alternate, against what a fresh sequence would have been fed.
TEST_F(KeptSequencesTest, AlwaysHoldsTheTokensThatWereAskedFor) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<Tokens> conversations(6);
  uint64_t reused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    Tokens& tokens = conversations[below(6)];
    if (below(4) == 0) tokens.resize(below(static_cast<uint32_t>(tokens.size()) + 1));
    if (tokens.size() > 300) tokens.clear();
    if (tokens.empty()) tokens = made_up(5, 1);  // all begin alike
    const uint32_t added = 1 + below(20);
    for (uint32_t i = 0; i < added; ++i) tokens.push_back(static_cast<int32_t>(below(3)));
    std::vector<CheckpointWish> wishes = {{5, SnapshotKind::kRoot}};
    for (uint32_t at = 6 + below(20); at < tokens.size(); at += 1 + below(60))
      wishes.push_back({at, SnapshotKind::kTurn});
    reused += read(tokens, wishes, below(10) == 0 ? kOther : kOwn, 5);
    ASSERT_LE(sequences_.checkpoints(), 3U);
    ASSERT_LE(sequences_.kept(), 3U);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reused, 0U);
}

}  // namespace
}  // namespace strata::gpu_worker
