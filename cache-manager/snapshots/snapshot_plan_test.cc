#include "cache-manager/snapshots/snapshot_plan.h"

#include <gmock/gmock.h>

namespace strata::cache_manager {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class SnapshotPlanTest : public testing::Test {
 protected:
  SnapshotPlan plan() { return plan_snapshots(settings_, "/run/x", memory_).value(); }
  config::Settings settings_;
  HostMemory memory_{.total_bytes = 128 * kGiB, .shared_bytes = 64 * kGiB, .run_dir_in_memory = false};
};

TEST_F(SnapshotPlanTest, TakesSharesOfTheMemory) {
  EXPECT_EQ(plan().ram_budget_bytes, 16 * kGiB);
  EXPECT_EQ(plan().ram_floor_bytes, 4 * kGiB);
  memory_.total_bytes = 16 * kGiB;
  EXPECT_EQ(plan().ram_floor_bytes, kGiB);
  memory_.shared_bytes = kGiB;
  EXPECT_EQ(plan().ram_budget_bytes, kGiB / 2) << "half of /dev/shm";
  memory_.shared_bytes = 0;
  EXPECT_EQ(plan().ram_budget_bytes, 2 * kGiB) << "/dev/shm has no limit of its own";
}

TEST_F(SnapshotPlanTest, TakesWhatIsConfigured) {
  settings_.conversations_ram_budget.set(config::Size::of(3 * kGiB));
  settings_.conversations_ram_floor.set(config::Size::of(0));
  settings_.conversations_disk_budget.set(config::Size::of(5 * kGiB));
  settings_.conversations_disk_folder.set(config::Path{"/var/x"});
  settings_.conversations_disk_free_min.set(config::Size::of(7));
  settings_.conversations_disk_rate.set(config::Size::of(9));
  EXPECT_EQ(plan().ram_budget_bytes, 3 * kGiB);
  EXPECT_EQ(plan().ram_floor_bytes, 0u);
  EXPECT_EQ(plan().disk_budget_bytes, 5 * kGiB);
  EXPECT_EQ(plan().disk_folder, "/var/x");
  EXPECT_EQ(plan().disk_free_bytes_min, 7u);
  EXPECT_EQ(plan().disk_bytes_per_second, 9u);
}

TEST_F(SnapshotPlanTest, RefusesABudgetThatSharedMemoryCannotHold) {
  settings_.conversations_ram_budget.set(config::Size::of(64 * kGiB + 1));
  const auto refused = plan_snapshots(settings_, "/run/x", memory_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("conversations.ram_budget"));
}

TEST_F(SnapshotPlanTest, TheDiskTierLiesInTheRunDirectoryUnlessThatIsMemory) {
  EXPECT_EQ(plan().disk_folder, "/run/x/conversations");
  EXPECT_EQ(plan().disk_off, "");
  memory_.run_dir_in_memory = true;
  EXPECT_EQ(plan().disk_folder, "");
  EXPECT_THAT(plan().disk_off, testing::HasSubstr("tmpfs"));
  settings_.conversations_disk_folder.set(config::Path{"/var/x"});
  EXPECT_EQ(plan().disk_folder, "/var/x");
  settings_.conversations_disk_budget.set(config::Size::of(0));
  EXPECT_EQ(plan().disk_folder, "");
  EXPECT_EQ(plan().disk_off, "") << "off because it is to be off";
}

TEST(HostMemory, IsThatOfThisMachine) {
  EXPECT_GT(host_memory("/").total_bytes, 0u);
  EXPECT_TRUE(host_memory("/dev/shm").run_dir_in_memory);
  EXPECT_FALSE(host_memory("/proc").run_dir_in_memory);
}

}  // namespace
}  // namespace strata::cache_manager
