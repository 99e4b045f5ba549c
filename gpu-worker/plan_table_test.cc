#include "gpu-worker/plan_table.h"

#include <gtest/gtest.h>

#include "gpu-worker/plan.h"

namespace strata::gpu_worker {
namespace {

TEST(PlanTable, BytesHaveTheUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 20), "5.0 MiB");
  EXPECT_EQ(bytes_text(uint64_t{7} << 29), "3.50 GiB");
}

TEST(PlanTable, ShowsWhatIsSetAsideTakenAndLeft) {
  const MemoryPlan plan{.set_aside = {{"reserve", uint64_t{1} << 30, "stays free", ""}},
                        .items = {{"weights", uint64_t{3} << 30, "everything", ""},
                                  {"arena", uint64_t{512} << 20, "some experts", "experts.slots"}},
                        .host_items = {{"boards", uint64_t{8} << 20, "dispatch", ""}},
                        .available_bytes = uint64_t{4} << 30,
                        .on_gpu = true};
  EXPECT_EQ(plan_table(plan),
            (std::vector<std::string>{
                "device memory       size  what for",  //
                "reserve         1.00 GiB  stays free", "weights         3.00 GiB  everything",
                "arena          512.0 MiB  some experts", "total           4.50 GiB  of 5.00 GiB",
                "left           512.0 MiB", "host memory         size  what for",
                "boards           8.0 MiB  dispatch"}));
}

TEST(PlanTable, SaysWhatIsMissing) {
  const MemoryPlan plan{.items = {{"kv", 3000, "sequences", ""}}, .available_bytes = 2000};
  EXPECT_EQ(plan_table(plan).back(), "missing           1000 B  it does not fit");
  EXPECT_EQ(plan_table(plan).front(), "host memory         size  what for");
}

}  // namespace
}  // namespace strata::gpu_worker
