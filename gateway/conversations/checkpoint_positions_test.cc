#include "gateway/conversations/checkpoint_positions.h"

#include <gmock/gmock.h>

#include <random>

namespace strata::gateway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using enum snapshot::SnapshotKind;

// No intervals, no limits unless a test is about them.
constexpr CheckpointOptions kPlain{
    .every_tokens = 0, .positions_max = 100, .gap_tokens_min = 1, .align_tokens = 1};

CheckpointPosition at(uint32_t position, snapshot::SnapshotKind kind) {
  return {.position = position, .kind = kind};
}

TEST(CheckpointPositions, AreTheLandmarksAndTheIntervalsInOrder) {
  CheckpointOptions options = kPlain;
  options.every_tokens = 400;
  const PromptLandmarks landmarks{.system_end = 100, .last_user = 700, .turns = {100, 250, 700, 950}};
  EXPECT_THAT(checkpoint_positions(landmarks, 1000, 0, options),
              ElementsAre(at(100, kRoot), at(250, kTurn), at(400, kInterval), at(700, kBeforeLastUser),
                          at(800, kInterval), at(950, kTurn)));
}

TEST(CheckpointPositions, LieBehindWhatWasReusedAndBeforeTheEnd) {
  const PromptLandmarks landmarks{.system_end = 100, .last_user = 700, .turns = {100, 250, 700, 999, 1000}};
  EXPECT_THAT(checkpoint_positions(landmarks, 1000, 250, kPlain),
              ElementsAre(at(700, kBeforeLastUser), at(999, kTurn)));
  EXPECT_THAT(checkpoint_positions(landmarks, 1000, 999, kPlain), IsEmpty());
  EXPECT_THAT(checkpoint_positions({}, 0, 0, kPlain), IsEmpty());
  CheckpointOptions every = kPlain;
  every.every_tokens = 1;
  EXPECT_THAT(checkpoint_positions({}, 1, 0, every), IsEmpty());
  EXPECT_THAT(checkpoint_positions({}, 3, 0, every), ElementsAre(at(1, kInterval), at(2, kInterval)));
}

TEST(CheckpointPositions, AreNoneOfNothing) {
  EXPECT_THAT(checkpoint_positions({}, 1000, 0, kPlain), IsEmpty());
  CheckpointOptions none = kPlain;
  none.positions_max = 0;
  EXPECT_THAT(checkpoint_positions({.system_end = 100}, 1000, 0, none), IsEmpty());
}

TEST(CheckpointPositions, OfOnePlaceOrNearlyTheMostImportantKindIsSaid) {
  CheckpointOptions options = kPlain;
  options.gap_tokens_min = 8;
  options.every_tokens = 500;
  const PromptLandmarks landmarks{.system_end = 503, .last_user = 503, .turns = {4, 503, 510, 511}};
  EXPECT_THAT(checkpoint_positions(landmarks, 600, 0, options), ElementsAre(at(500, kRoot), at(510, kTurn)));
}

TEST(CheckpointPositions, ALastOneIsThereWhereOthersReadTheSamePrompt) {
  CheckpointOptions options{.every_tokens = 0,
                            .positions_max = 1,
                            .gap_tokens_min = 8,
                            .chunk_tokens = 512,
                            .before_last_token = true};
  const PromptLandmarks landmarks{.system_end = 100, .last_user = 700, .turns = {100, 250, 700}};
  EXPECT_THAT(checkpoint_positions(landmarks, 1000, 0, options),
              ElementsAre(at(700, kBeforeLastUser), at(999, kTurn)))
      << "whatever else there may be";
  EXPECT_THAT(checkpoint_positions({}, 1000, 0, options), ElementsAre(at(999, kTurn)));
  EXPECT_THAT(checkpoint_positions({}, 1000, 992, options), IsEmpty()) << "those few tokens are read again";
  EXPECT_THAT(checkpoint_positions({.last_user = 995}, 1000, 0, options),
              ElementsAre(at(995, kBeforeLastUser)));
  options.reused_stays = false;
  EXPECT_THAT(checkpoint_positions({}, 1000, 992, options), ElementsAre(at(999, kTurn)));
  EXPECT_THAT(checkpoint_positions({}, 1000, 999, options), IsEmpty());
  options.align_tokens = 16;
  EXPECT_THAT(checkpoint_positions({}, 1000, 0, options), ElementsAre(at(992, kTurn)));
  EXPECT_THAT(checkpoint_positions({}, 1, 0, options), IsEmpty());
  EXPECT_THAT(checkpoint_positions({}, 0, 0, options), IsEmpty());
}

TEST(CheckpointPositions, CanBeHeldToTheCutsOfTheDevice) {
  CheckpointOptions options = kPlain;
  options.align_tokens = 64;
  const PromptLandmarks landmarks{.system_end = 63, .last_user = 130, .turns = {63, 130, 190}};
  EXPECT_THAT(checkpoint_positions(landmarks, 200, 0, options), ElementsAre(at(128, kBeforeLastUser)));
  options.align_tokens = 0;  // as 1
  EXPECT_EQ(checkpoint_positions(landmarks, 200, 0, options).size(), 3u);
}

TEST(CheckpointPositions, LieRightBehindAStateThatIsTakenAlong) {
  CheckpointOptions options = kPlain;
  options.gap_tokens_min = 8;
  const PromptLandmarks landmarks{.system_end = 100, .last_user = 702, .turns = {702}};
  EXPECT_THAT(checkpoint_positions(landmarks, 750, 700, options), IsEmpty()) << "700 is as good";
  options.reused_stays = false;
  EXPECT_THAT(checkpoint_positions(landmarks, 750, 700, options), ElementsAre(at(702, kBeforeLastUser)));
}

TEST(CheckpointPositions, CostFewChunksMoreThanReadingWithoutThem) {
  PromptLandmarks landmarks{.system_end = 900, .last_user = 7000, .turns = {}};
  for (uint32_t turn = 900; turn <= 7000; turn += 100) landmarks.turns.push_back(turn);
  CheckpointOptions options = kPlain;
  options.every_tokens = 2048;
  options.chunk_tokens = 8192;
  // One chunk would do: root and last message, and no interval inside of it.
  EXPECT_THAT(checkpoint_positions(landmarks, 7100, 0, options),
              ElementsAre(at(900, kRoot), at(7000, kBeforeLastUser)));
  // Three full chunks: intervals where they end.
  EXPECT_THAT(checkpoint_positions({}, 30'000, 0, options),
              ElementsAre(at(8192, kInterval), at(16'384, kInterval), at(24'576, kInterval)));
  // A few new tokens behind a long history still have their two.
  EXPECT_THAT(checkpoint_positions({.system_end = 900, .last_user = 7000, .turns = {7000, 7060}}, 7100, 6990,
                                   options),
              ElementsAre(at(7000, kBeforeLastUser), at(7060, kTurn)));
  options.chunk_tokens = 1500;
  EXPECT_THAT(checkpoint_positions({}, 7100, 0, options),
              ElementsAre(at(3000, kInterval), at(6000, kInterval)));
}

TEST(CheckpointPositions, TheLastOneLeftIsTheOneThatSavesMost) {
  CheckpointOptions one = kPlain;
  one.positions_max = 1;
  // A new chat over the root saves 3,000 tokens, an edit of the last message 3,100 of which the root has
  // most.
  EXPECT_THAT(
      checkpoint_positions({.system_end = 3000, .last_user = 3100, .turns = {3100, 3150}}, 4000, 0, one),
      ElementsAre(at(3000, kRoot)));
  EXPECT_THAT(
      checkpoint_positions({.system_end = 20, .last_user = 3100, .turns = {3100, 3150}}, 4000, 0, one),
      ElementsAre(at(3100, kBeforeLastUser)));
  // With the root reused, it is what comes after it that counts.
  EXPECT_THAT(
      checkpoint_positions({.system_end = 3000, .last_user = 3900, .turns = {3100, 3900}}, 4000, 3000, one),
      ElementsAre(at(3900, kBeforeLastUser)));
}

TEST(CheckpointPositions, ALongHistoryKeepsRootLastMessageAndAnEvenSpread) {
  PromptLandmarks landmarks{.system_end = 1000, .last_user = 30'000};
  for (uint32_t turn = 1000; turn <= 30'000; turn += 100) landmarks.turns.push_back(turn);
  CheckpointOptions options = kPlain;
  options.positions_max = 8;
  const auto kept = checkpoint_positions(landmarks, 30'200, 0, options);
  ASSERT_EQ(kept.size(), 8u);
  EXPECT_EQ(kept.front(), at(1000, kRoot));
  EXPECT_EQ(kept.back(), at(30'000, kBeforeLastUser));
  for (std::size_t i = 1; i < kept.size(); ++i) {
    EXPECT_LE(kept[i].position - kept[i - 1].position, 2 * (29'000 / 7)) << kept[i].position;
  }
}

TEST(CheckpointPositions, StayWithinTheirBoundsForAnyLandmarks) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
    PromptLandmarks landmarks{.system_end = draw(3000), .last_user = draw(3000)};
    for (uint32_t i = draw(40); i > 0; --i) landmarks.turns.push_back(draw(3000));
    const CheckpointOptions options{.every_tokens = draw(300),
                                    .positions_max = draw(20),
                                    .gap_tokens_min = draw(30),
                                    .align_tokens = draw(3) == 0 ? 1 + draw(100) : 1,
                                    .chunk_tokens = draw(3) == 0 ? 1 + draw(500) : 0};
    const uint32_t tokens = draw(3000), reused = draw(tokens + 1);
    const auto kept = checkpoint_positions(landmarks, tokens, reused, options);
    EXPECT_LE(kept.size(), options.positions_max);
    uint32_t before = reused;
    for (const auto& one : kept) {
      EXPECT_GT(one.position, before);
      EXPECT_GE(one.position - before, options.gap_tokens_min);
      EXPECT_LT(one.position, tokens);
      EXPECT_EQ(one.position % options.align_tokens, 0u);
      before = one.position;
    }
  }
}

}  // namespace
}  // namespace strata::gateway
