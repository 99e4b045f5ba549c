#include "gpu-worker/plan.h"

#include <gtest/gtest.h>

#include "services/synthetic/model_outline.h"
#include "services/synthetic/model_spec.h"

namespace strata::gpu_worker {
namespace {

constexpr uint64_t kMiB = 1 << 20;

model::ModelWeights outline(std::string_view spec) {
  const auto plan = synthetic::plan_model(synthetic::parse_model_spec(spec).value()).value();
  return model::load_model(synthetic::open_outline(plan).value()).value();
}
// 8 layers of 64 experts of 28 KiB.
const model::ModelWeights& demo_shape() {
  static const model::ModelWeights weights = outline("demo-shape");
  return weights;
}

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    set("engine.sequences", "2");
    set("engine.context_tokens", "1024");
    set("engine.prefill_chunk_tokens", "128");
    set("engine.checkpoints", "4");
    set("cpu_experts.workers", "1");
    set("device.threads", "2");
  }
  void set(std::string_view name, std::string_view value) {
    const Status status = settings_.find(name)->parse(value);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Result<MemoryPlan> plan() {
    return make_host_plan(demo_shape(), settings_, *planned_context(demo_shape().config, settings_),
                          available_bytes_);
  }

  config::Settings settings_;
  uint64_t available_bytes_ = 1000 * kMiB;
};

TEST_F(PlanTest, AddsUpEveryPart) {
  set("experts.slots", "40");
  auto planned = plan();
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned->context_tokens, 1024u);
  EXPECT_EQ(planned->window_rows_max, 130u);
  EXPECT_EQ(planned->experts_total, 512u);
  EXPECT_EQ(planned->slots, 40u);
  EXPECT_EQ(planned->slot_bytes % kCacheLine, 0u);
  EXPECT_GE(planned->slot_bytes, demo_shape().max_expert_record_bytes());
  // Two attention layers: keys and values of 2 heads of 64, block keys of 64 for every 4 tokens.
  EXPECT_GT(planned->item("kv").bytes, 2u * 1024 * 2 * (2 * 2 * 64 + 64 / 4) * 4);
  EXPECT_EQ(planned->checkpoint_slots, 4u);
  // Six delta-net layers, two heads of 64 at the least.
  EXPECT_GT(planned->item("checkpoints").bytes, 4u * 6 * 2 * 64 * 64 * sizeof(float));
  EXPECT_EQ(planned->item("arena").bytes, 40 * planned->slot_bytes);
  EXPECT_EQ(planned->board.pairs_max, 130u * 6);
  EXPECT_EQ(planned->item("boards").bytes, planned->board.segment_bytes()) << "one worker";
  EXPECT_GT(planned->item("tables").bytes, 8u * 64 * 16) << "two counters an expert";
  EXPECT_EQ(planned->item("grammars").bytes, 8192u * 512 + kGrammarCacheBytes);
  uint64_t sum = 0;
  for (const PlanItem& item : planned->items) sum += item.bytes;
  EXPECT_EQ(planned->total_bytes(), sum);
  EXPECT_EQ(planned->left_bytes(), available_bytes_ - sum);
}

TEST_F(PlanTest, SlotsAreANumberAShareOrAutomatic) {
  set("experts.slots", "25%");
  EXPECT_EQ(plan()->slots, 128u);
  set("experts.slots", "100%");
  EXPECT_EQ(plan()->slots, 512u);
  set("experts.slots", "0");
  EXPECT_EQ(plan()->slots, 0u);
  set("experts.slots", "1000000");
  EXPECT_EQ(plan()->slots, 512u) << "no more than there are experts";
  set("experts.slots", "auto");
  EXPECT_EQ(plan()->slots, 128u) << "a quarter";
}

TEST_F(PlanTest, CheckpointsAreANumberOrWhatAShareOfTheMemoryHolds) {
  EXPECT_EQ(planned_checkpoints(settings_, 0, kMiB), 4u) << "as set, whatever there is";
  set("engine.checkpoints", "auto");
  EXPECT_EQ(planned_checkpoints(settings_, 64 * 10 * kMiB, kMiB), 10u);
  EXPECT_EQ(planned_checkpoints(settings_, 64 * kMiB, kMiB), 2u) << "at least";
  EXPECT_EQ(planned_checkpoints(settings_, 64 * 100 * kMiB, kMiB), 32u) << "at most";
}

TEST_F(PlanTest, AutomaticSlotsShrinkToHalfOfWhatIsLeft) {
  set("experts.slots", "0");
  available_bytes_ = plan()->total_bytes() + 2 * kMiB;
  set("experts.slots", "auto");
  auto planned = plan();
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned->slots, kMiB / planned->slot_bytes);
  EXPECT_LT(planned->slots, 128u);
}

TEST_F(PlanTest, RefusesWithBothNumbersAndTheSettingToLower) {
  set("experts.slots", "100%");
  available_bytes_ = 80 * kMiB;
  auto planned = plan();
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code(), Code::kResourceExhausted);
  const std::string& message = planned.error().message();
  EXPECT_NE(message.find("80.0 MiB are available"), std::string::npos) << message;
  EXPECT_NE(message.find("for 512 of 512 experts"), std::string::npos) << message;
  EXPECT_NE(message.find("lower experts.slots"), std::string::npos) << message;

  set("experts.slots", "0");
  set("engine.sequences", "16");
  set("engine.context_tokens", "8192");
  const std::string longer = plan().error().message();
  EXPECT_NE(longer.find("for 16 sequences of 8192 tokens: lower engine.context_tokens or engine.sequences"),
            std::string::npos)
      << longer;
}

TEST_F(PlanTest, NamesNoSettingWhereNoneHelps) {
  const MemoryPlan hopeless{
      .items = {{"weights", 10 * kMiB, "w", ""}, {"kv", 1 * kMiB, "k", "engine.sequences"}},
      .available_bytes = 5 * kMiB,
      .on_gpu = true};
  const std::string message = check_fits(hopeless).message();
  EXPECT_NE(message.find("10.0 MiB of it no setting makes smaller: it takes a larger card"),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find("engine.sequences"), std::string::npos) << message;
}

// What the estimate of earlier versions left out.
TEST_F(PlanTest, LongPromptChunksCostWhatTheirBuffersTake) {
  const auto buffers = [&] { return plan()->item("buffers").bytes; };
  set("experts.slots", "0");
  const uint64_t small = buffers();
  set("engine.prefill_chunk_tokens", "1000");
  const uint64_t large = buffers();
  const uint64_t row = (large - small) / (1000 - 128);
  // Streams twice, mixers and n-gram embedding: 8 values of each stream element, at least.
  EXPECT_GT(row, 8u * 4 * 256 * sizeof(float));
}

TEST_F(PlanTest, TheContextIsTheModelsUnlessASmallerOneIsSet) {
  const model::ModelConfig& config = demo_shape().config;
  EXPECT_EQ(*planned_context(config, settings_), 1024u);
  set("engine.context_tokens", "0");
  EXPECT_EQ(*planned_context(config, settings_), 8192u);
  set("engine.context_tokens", "10000");
  auto refused = planned_context(config, settings_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("8192"), std::string::npos);
}

}  // namespace
}  // namespace strata::gpu_worker
