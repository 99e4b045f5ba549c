// Dealing out units: each exactly once, whoever is late; never a unit of a round that is over.

#include "cpu-expert-worker/work_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace strata::cpu_expert_worker {
namespace {

constexpr StageUnits kSome{3, 40, 160};

std::vector<uint32_t> take_all(WorkShares& shares, const WorkShares::Round& round, Stage stage,
                               uint32_t lane) {
  std::vector<uint32_t> units;
  for (auto claim = shares.take(round, stage, lane); !claim.empty();
       claim = shares.take(round, stage, lane)) {
    for (uint32_t unit = claim.begin; unit < claim.end; ++unit) units.push_back(unit);
    shares.finish(round, stage, lane, claim);
  }
  return units;
}

TEST(WorkSharesTest, HasNoRoundBeforeTheFirst) {
  WorkShares shares(2);
  EXPECT_EQ(shares.current().generation, 0U);
  EXPECT_TRUE(shares.take(shares.current(), Stage::kWhole, 0).empty());
}

TEST(WorkSharesTest, SharesFollowEachOtherWhateverIsTaken) {
  for (const uint32_t lanes : {1U, 2U, 7U, 64U}) {
    WorkShares shares(lanes);
    shares.open(kSome);
    const auto round = shares.current();
    (void)shares.take(round, Stage::kOutput, 0);
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
      uint32_t end = 0;
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const WorkShares::Claim share = shares.share(round, stage, lane);
        EXPECT_EQ(share.begin, end);
        end = share.end;
      }
      EXPECT_EQ(end, round.of(stage));
    }
  }
}

TEST(WorkSharesTest, GivesEveryUnitOnceToALaneThatIsAlone) {
  for (const uint32_t lanes : {1U, 2U, 5U, 15U, 64U}) {
    WorkShares shares(lanes);
    for (int repeat = 0; repeat < 3; ++repeat) {
      shares.open(kSome);
      const auto round = shares.current();
      for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
        EXPECT_FALSE(shares.complete(round, stage));
        std::vector<uint32_t> units = take_all(shares, round, stage, lanes - 1);
        std::ranges::sort(units);
        ASSERT_EQ(units.size(), round.of(stage));
        for (uint32_t i = 0; i < units.size(); ++i) ASSERT_EQ(units[i], i);
        EXPECT_TRUE(shares.complete(round, stage));
      }
    }
  }
}

TEST(WorkSharesTest, GivesALaneItsOwnShareFirstInShrinkingPieces) {
  WorkShares shares(4);
  shares.open({0, 64, 0});
  const auto round = shares.current();
  std::vector<uint32_t> sizes;
  for (uint32_t next = 16; next < 32;) {
    const auto claim = shares.take(round, Stage::kIntermediate, 1);
    ASSERT_EQ(claim.begin, next);
    next = claim.end;
    sizes.push_back(claim.size());
  }
  EXPECT_EQ(sizes, (std::vector<uint32_t>{8, 4, 2, 1, 1}));
  EXPECT_EQ(shares.take(round, Stage::kIntermediate, 1).begin, 32U) << "then the neighbour's";
}

TEST(WorkSharesTest, CanGiveAShareAtOnce) {
  WorkShares shares(2, 1);
  shares.open({0, 11, 0});
  EXPECT_EQ(shares.take(shares.current(), Stage::kIntermediate, 0).size(), 5U);
  EXPECT_EQ(shares.take(shares.current(), Stage::kIntermediate, 1).size(), 6U);
}

TEST(WorkSharesTest, GivesWholeExpertsOneByOne) {
  WorkShares shares(1);
  shares.open({5, 0, 0});
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(shares.take(shares.current(), Stage::kWhole, 0).size(), 1U);
  EXPECT_TRUE(shares.take(shares.current(), Stage::kWhole, 0).empty());
}

TEST(WorkSharesTest, IsCompleteOnlyWhenTakenUnitsAreFinished) {
  WorkShares shares(2);
  shares.open({0, 2, 0});
  const auto round = shares.current();
  const auto first = shares.take(round, Stage::kIntermediate, 0);
  const auto second = shares.take(round, Stage::kIntermediate, 0);  // the other lane's
  shares.finish(round, Stage::kIntermediate, 0, first);
  EXPECT_FALSE(shares.complete(round, Stage::kIntermediate));
  shares.finish(round, Stage::kIntermediate, 0, second);
  EXPECT_TRUE(shares.complete(round, Stage::kIntermediate));
  EXPECT_TRUE(shares.complete(round, Stage::kWhole)) << "there was nothing to do";
}

// A helper that saw a round and was then not scheduled until the next one is open, which has other numbers of
// units.
TEST(WorkSharesTest, ALateLaneGetsNothingOfARoundThatIsOver) {
  WorkShares shares(3);
  for (const StageUnits next : {StageUnits{9, 9, 9}, StageUnits{0, 100, 400}, StageUnits{1, 0, 0}}) {
    shares.open({1, 2, 0});  // the third lane has no share of some stages
    const auto late = shares.current();
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate}) take_all(shares, late, stage, 0);
    shares.open(next);
    const auto round = shares.current();
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
      for (uint32_t lane = 0; lane < 3; ++lane) EXPECT_TRUE(shares.take(late, stage, lane).empty());
      EXPECT_TRUE(shares.complete(late, stage)) << "nobody waits for a round that is over";
      EXPECT_EQ(take_all(shares, round, stage, 1).size(), round.of(stage)) << "and nothing was taken away";
    }
  }
}

// All lanes at once, under ThreadSanitizer too: units write plain memory that the leader plans and reads, so
// that a unit given twice, or to a late lane, shows as a wrong sum or as a race.
TEST(WorkSharesTest, LanesShareManyRoundsWithoutLosingOrRepeatingAUnit) {
  constexpr uint32_t kLanes = 4;
  constexpr uint32_t kRounds = 3000;
  WorkShares shares(kLanes);
  std::vector<uint32_t> plan, done;  // the request: changed by the leader between rounds
  std::atomic<bool> stopping{false};
  const auto work = [&](uint32_t lane) {
    const auto round = shares.current();
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
      if (stage == Stage::kOutput && round.of(stage) > 0) {
        while (!shares.complete(round, Stage::kIntermediate)) std::this_thread::yield();
      }
      for (auto claim = shares.take(round, stage, lane); !claim.empty();
           claim = shares.take(round, stage, lane)) {
        for (uint32_t unit = claim.begin; unit < claim.end; ++unit) {
          const uint32_t at = unit * 3 + static_cast<uint32_t>(stage);
          done[at] += plan[at];
        }
        shares.finish(round, stage, lane, claim);
      }
    }
  };
  std::vector<std::thread> helpers;
  for (uint32_t lane = 1; lane < kLanes; ++lane) {
    helpers.emplace_back([&, lane] {
      while (!stopping.load(std::memory_order_relaxed)) {
        work(lane);
        std::this_thread::yield();
      }
    });
  }
  for (uint32_t number = 1; number <= kRounds; ++number) {
    const StageUnits units{number % 5, number % 2 * (number % 37), number % 2 * (number % 53)};
    plan.assign(3 * 64, number);
    done.assign(3 * 64, 0);
    shares.open(units);
    work(0);
    const auto round = shares.current();
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
      while (!shares.complete(round, stage)) std::this_thread::yield();
      for (uint32_t unit = 0; unit < 64; ++unit) {
        ASSERT_EQ(done[unit * 3 + static_cast<uint32_t>(stage)], unit < round.of(stage) ? number : 0U)
            << "round " << number << ", unit " << unit;
      }
    }
  }
  stopping = true;
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace
}  // namespace strata::cpu_expert_worker
