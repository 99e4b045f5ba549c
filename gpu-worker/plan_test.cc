#include "gpu-worker/plan.h"

#include <gtest/gtest.h>

namespace strata::gpu_worker {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    config_.context_length = 4096;
    config_.hidden = 256;
    config_.streams = 2;
    config_.vocab = 1000;
    config_.experts = 16;
    config_.experts_used = 4;
    config_.shared_width = 64;
    set("engine.sequences", "2");
    set("engine.context_tokens", "1024");
    set("engine.prefill_chunk_tokens", "128");
  }
  void set(std::string_view name, std::string_view value) {
    ASSERT_TRUE(settings_.find(name)->parse(value).ok());
  }
  Result<MemoryPlan> plan() {
    return make_plan(config_, settings_, *planned_context(config_, settings_), input_);
  }

  model::ModelConfig config_;
  config::Settings settings_;
  PlanInput input_{.available_bytes = 1000 * kMiB,
                   .sequence_bytes = 10 * kMiB,
                   .slot_bytes = 100'000,
                   .experts_total = 160};
};

TEST_F(PlanTest, AddsUpEveryPart) {
  set("experts.slots", "40");
  auto planned = plan();
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned->context_tokens, 1024u);
  EXPECT_EQ(planned->window_rows_max, 130u);
  EXPECT_EQ(planned->slots, 40u);
  EXPECT_EQ(planned->slot_bytes, 100'032u) << "whole cache lines";
  EXPECT_EQ(planned->item("kv").bytes, 20 * kMiB);
  EXPECT_EQ(planned->item("arena").bytes, 40u * 100'032u);
  EXPECT_EQ(planned->board.pairs_max, 130u * 4);
  EXPECT_EQ(planned->item("boards").bytes, planned->board.segment_bytes()) << "one worker";
  EXPECT_GT(planned->total_bytes(), 20 * kMiB + 40u * 100'032u);
  ASSERT_EQ(planned->lines().size(), 5u);
  EXPECT_NE(planned->lines()[3].find("40 of 160 experts"), std::string::npos) << planned->lines()[3];
}

TEST_F(PlanTest, SlotsAreANumberAShareOrAutomatic) {
  set("experts.slots", "25%");
  EXPECT_EQ(plan()->slots, 40u);
  set("experts.slots", "100%");
  EXPECT_EQ(plan()->slots, 160u);
  set("experts.slots", "0");
  EXPECT_EQ(plan()->slots, 0u);
  set("experts.slots", "1000000");
  EXPECT_EQ(plan()->slots, 160u) << "no more than there are experts";
  set("experts.slots", "auto");
  EXPECT_EQ(plan()->slots, 40u) << "a quarter";
}

TEST_F(PlanTest, AutomaticSlotsShrinkToWhatIsLeft) {
  set("experts.slots", "auto");
  input_.available_bytes = 30 * kMiB;
  auto planned = plan();
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_GT(planned->slots, 0u);
  EXPECT_LT(planned->slots, 40u);
  EXPECT_LE(planned->total_bytes(), planned->available_bytes);
}

TEST_F(PlanTest, RefusesWithBothNumbersAndTheSettingToLower) {
  input_.sequence_bytes = 600 * kMiB;
  auto planned = plan();
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code(), Code::kResourceExhausted);
  const std::string& message = planned.error().message();
  EXPECT_NE(message.find("1000.0 MiB are available"), std::string::npos) << message;
  EXPECT_NE(message.find("1200.0 MiB for 2 sequences of 1024 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("engine.context_tokens"), std::string::npos) << message;
}

TEST_F(PlanTest, TheContextIsTheModelsUnlessASmallerOneIsSet) {
  EXPECT_EQ(*planned_context(config_, settings_), 1024u);
  set("engine.context_tokens", "0");
  EXPECT_EQ(*planned_context(config_, settings_), 4096u);
  set("engine.context_tokens", "5000");
  auto refused = planned_context(config_, settings_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("4096"), std::string::npos);
}

}  // namespace
}  // namespace strata::gpu_worker
