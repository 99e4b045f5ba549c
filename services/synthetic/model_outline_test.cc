#include "services/synthetic/model_outline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "services/model/model_weights.h"
#include "services/synthetic/model_spec.h"

namespace strata::synthetic {
namespace {

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// 130 GB of weights.
TEST(ModelOutline, HasTheShapeOfALargeModelAndTakesNoMemory) {
  const auto request = parse_model_spec("qwen3.8-flash-next:types=Q8_0");
  ASSERT_TRUE(request) << request.error().message();
  const auto plan = plan_model(*request);
  ASSERT_TRUE(plan) << plan.error().message();
  const uint64_t before = resident_bytes();
  const auto file = open_outline(*plan);
  ASSERT_TRUE(file) << file.error().message();
  const auto weights = model::load_model(*file);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->layers.size(), 48u);
  EXPECT_EQ(weights->layers[47].moe.experts.count, 512u);
  EXPECT_GT(file->total_bytes(), plan->bytes());
  EXPECT_GT(plan->bytes(), uint64_t{100} << 30);
  EXPECT_LT(resident_bytes() - before, uint64_t{256} << 20);
}

}  // namespace
}  // namespace strata::synthetic
