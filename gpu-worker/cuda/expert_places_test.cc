// Which experts a large window copies and which it leaves to the boards, and how the split is learned.

#include "gpu-worker/cuda/expert_places.h"

#include <gtest/gtest.h>

#include "gpu-worker/cuda/cpu_share.h"
#include "gpu-worker/fake_device.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kExpertsMax = 8;

class ExpertPlacesTest : public testing::Test {
 protected:
  void fill(uint32_t slot, uint32_t layer, uint32_t expert) {
    const ExpertExchange exchange{slot, layer, expert};
    ASSERT_TRUE(device_.residents().retire(epoch_, {&exchange, 1}));
    ASSERT_TRUE(device_.residents().land(epoch_, {&slot, 1}));
  }
  void use(uint32_t layer, uint32_t expert, uint64_t times) { usage_.decode(layer, expert).store(times); }
  std::vector<uint32_t> row(const std::vector<uint32_t>& table, uint32_t layer) const {
    const auto begin = table.begin() + layer * kExpertsMax;
    return {begin, begin + kExpertsMax};
  }

  FakeDevice device_{1, /*slots=*/3, {8, 6}};
  uint64_t epoch_ = device_.residents().begin_attachment();
  const shm::UsageBoard& usage_ = device_.usage();
  ExpertPlaceTables places_{{8, 6}};
};

TEST_F(ExpertPlacesTest, ResidentExpertsHaveSlotsAndAllOthersAreCopied) {
  fill(2, 1, 4);
  EXPECT_TRUE(places_.update(device_.residents()));
  EXPECT_FALSE(places_.update(device_.residents())) << "nothing has changed";
  EXPECT_TRUE(places_.plan_copies(0.0, usage_));
  EXPECT_FALSE(places_.plan_copies(0.0, usage_)) << "nothing has changed";
  EXPECT_EQ(row(places_.with_boards(), 1),
            (std::vector<uint32_t>{kMissing, kMissing, kMissing, kMissing, 2, kMissing, kMissing, kMissing}));
  EXPECT_EQ(row(places_.with_copies(), 1),
            (std::vector<uint32_t>{kStreamed, kStreamed + 1, kStreamed + 2, kStreamed + 3, 2, kStreamed + 4,
                                   kMissing, kMissing}));
  EXPECT_EQ(places_.copied(1), (std::vector<uint32_t>{0, 1, 2, 3, 5}));
}

TEST_F(ExpertPlacesTest, BoardsGetTheExpertsThatWereUsedLeast) {
  fill(2, 1, 4);
  for (uint32_t expert = 0; expert < 6; ++expert) use(1, expert, expert == 2 ? 0 : 10 - expert);
  places_.update(device_.residents());
  EXPECT_TRUE(places_.plan_copies(0.4, usage_));
  EXPECT_EQ(places_.copied(1), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(row(places_.with_copies(), 1),
            (std::vector<uint32_t>{kStreamed, kStreamed + 1, kMissing, kStreamed + 2, 2, kMissing, kMissing,
                                   kMissing}));
  EXPECT_TRUE(places_.plan_copies(1.0, usage_));
  EXPECT_TRUE(places_.copied(1).empty());
  EXPECT_EQ(places_.with_copies(), places_.with_boards());
  EXPECT_TRUE(places_.plan_copies(0.0, usage_));
  EXPECT_EQ(places_.copied(1), (std::vector<uint32_t>{0, 1, 2, 3, 5}));
  EXPECT_FALSE(places_.plan_copies(0.0, usage_)) << "nothing is left to boards, as before";
}

// Exchanges at every window: what was taken note of change by change is what would have been made anew.
TEST_F(ExpertPlacesTest, FollowsChangesAsIfTheTablesWereMadeAnew) {
  ResidentTable& residents = device_.residents();
  uint32_t turn = 1;
  for (int window = 0; window < 200; ++window) {
    turn = turn * 1664525 + 1013904223;
    const ExpertExchange exchange{turn >> 8 & 1, turn >> 16 & 1, turn >> 20 & 3};
    const auto accepted = residents.retire(epoch_, {&exchange, 1});
    ASSERT_TRUE(accepted);
    if (window % 3 == 0) places_.update(residents);  // between retirement and landing
    if (accepted->front() && window % 5 != 0) {
      ASSERT_TRUE(residents.land(epoch_, {&exchange.slot, 1}));
    } else if (accepted->front()) {
      ASSERT_TRUE(residents.abandon(epoch_, {&exchange.slot, 1}).ok());
    }
    places_.update(residents);
    places_.plan_copies(0.0, usage_);
    ExpertPlaceTables anew{{8, 6}};
    anew.update(residents);
    anew.plan_copies(0.0, usage_);
    ASSERT_EQ(places_.with_boards(), anew.with_boards()) << "window " << window;
    ASSERT_EQ(places_.with_copies(), anew.with_copies()) << "window " << window;
    ASSERT_EQ(places_.copied(0), anew.copied(0)) << "window " << window;
  }
}

// The wait behind the copies in a machine where the workers are done with a share of `good` when the copies
// are.
double wait_of(double share, double good) { return share > good ? share - good : 0; }

TEST(CpuShare, ComesToWhereNobodyWaitsLong) {
  for (const double good : {0.0, 0.3, 0.7, 1.0}) {
    CpuShare share;
    for (int window = 0; window < 40; ++window) share.window_took(300, wait_of(share.of(300), good), 1.0);
    EXPECT_NEAR(share.of(300), good, 0.13);
  }
}

TEST(CpuShare, LearnsForEachSizeByItself) {
  CpuShare share;
  const double first = share.of(100);
  for (int window = 0; window < 5; ++window) share.window_took(500, 0.5, 1.0);
  EXPECT_LT(share.of(500), first);
  EXPECT_EQ(share.of(100), first);
  EXPECT_EQ(share.of(500), share.of(260));
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
