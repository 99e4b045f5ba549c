// The plan of the cuda device for the real model's shape, for cards that are not there.
#include "gpu-worker/cuda/vram_plan.h"

#include <gtest/gtest.h>

#include "gpu-worker/cuda/device_layout.h"
#include "services/synthetic/model_outline.h"
#include "services/synthetic/model_spec.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

model::ModelWeights outline(std::string_view spec) {
  const auto plan = synthetic::plan_model(synthetic::parse_model_spec(spec).value()).value();
  return model::load_model(synthetic::open_outline(plan).value()).value();
}
// As published: experts in four bits, everything else in eight.
const model::ModelWeights& real_shape() {
  static const model::ModelWeights weights = outline("qwen3.8-flash-next:types=IQ4_XS/IQ4_NL");
  return weights;
}

class VramPlanTest : public testing::Test {
 protected:
  VramPlanTest() {
    set("engine.sequences", "1");
    set("engine.context_tokens", "32768");
    set("cpu_experts.workers", "1");
  }
  void set(std::string_view name, std::string_view value) {
    const Status status = settings_.find(name)->parse(value);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Result<VramPlan> plan(uint64_t card, uint64_t in_use = 512 * kMiB) {
    return make_vram_plan(real_shape(), settings_, *planned_context(real_shape().config, settings_),
                          {.total_bytes = card, .free_bytes = card - in_use});
  }

  config::Settings settings_;
};

TEST_F(VramPlanTest, FillsCardsOfEverySize) {
  uint32_t slots = 0, chunk = 0;
  for (const uint64_t card : {12 * kGiB, 16 * kGiB, 24 * kGiB, 80 * kGiB}) {
    SCOPED_TRACE(card / kGiB);
    const auto planned = plan(card);
    ASSERT_TRUE(planned) << planned.error().message();
    const MemoryPlan& memory = planned->memory;
    EXPECT_EQ(memory.experts_total, 48u * 512);
    EXPECT_GT(memory.slots, slots) << "a larger card holds more";
    EXPECT_GE(memory.prefill_chunk_tokens, chunk);
    EXPECT_EQ(total_bytes(memory.set_aside) + memory.available_bytes, card);
    if (memory.slots < memory.experts_total) {
      EXPECT_LT(memory.left_bytes(), memory.slot_bytes) << "auto leaves no room for another expert";
    }
    slots = memory.slots;
    chunk = memory.prefill_chunk_tokens;
  }
}

TEST_F(VramPlanTest, TheRingForCopiesIsAsLongAsTheCardIsLarge) {
  uint32_t slots = 0;
  for (const uint64_t card : {10 * kGiB, 12 * kGiB, 16 * kGiB, 24 * kGiB, 80 * kGiB}) {
    SCOPED_TRACE(card / kGiB);
    const auto planned = plan(card);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_GE(planned->ring_batches, 2u) << "one is copied while the other is used";
    EXPECT_EQ(planned->limits.batches * planned->batch_experts, 512u);
    EXPECT_GE(planned->staging_slots(), slots);
    EXPECT_LT(planned->staging_slots(), planned->memory.slots / 8) << "the arena is what the card is for";
    slots = planned->staging_slots();
  }
  EXPECT_EQ(slots, 4u * 64) << "more would not be faster";
}

TEST_F(VramPlanTest, RefusesASmallCardAndSaysWhatItTakes) {
  const auto planned = plan(4 * kGiB);
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code(), Code::kResourceExhausted);
  const std::string& message = planned.error().message();
  EXPECT_NE(message.find("not enough device memory"), std::string::npos) << message;
  EXPECT_NE(message.find("a larger card or a smaller model"), std::string::npos) << message;

  // What does not fit can still be looked at.
  const auto laid_out =
      lay_out_vram(real_shape(), settings_, 32768, {.total_bytes = 4 * kGiB, .free_bytes = 4 * kGiB});
  ASSERT_TRUE(laid_out);
  EXPECT_GT(laid_out->memory.total_bytes(), laid_out->memory.available_bytes);
  EXPECT_EQ(laid_out->memory.slots, 0u);
}

TEST_F(VramPlanTest, NamesTheSequencesWhereTheyAreTooMany) {
  set("engine.sequences", "16");
  set("engine.context_tokens", "262144");
  set("device.kv", "float32");
  const auto planned = plan(24 * kGiB);
  ASSERT_FALSE(planned);
  EXPECT_NE(
      planned.error().message().find(
          "for 16 sequences of 262144 tokens: lower engine.context_tokens, engine.sequences or device.kv"),
      std::string::npos)
      << planned.error().message();
}

TEST_F(VramPlanTest, TheItemsAreTheBytesThatTheDeviceCuts) {
  for (const char* routing : {"", "mild"}) {
    set("engine.synthetic_routing", routing);
    const auto planned = plan(24 * kGiB);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_EQ(planned->forced_routing, *routing != '\0');
    Placer counting;
    lay_out(real_shape(), *planned, counting, nullptr);
    const MemoryPlan& memory = planned->memory;
    EXPECT_EQ(counting.used_bytes(), memory.total_bytes() - memory.item("arena").bytes);
    const StateLayout kept(state_arrays(real_shape().config, memory.context_tokens, planned->kv));
    const uint64_t kept_bytes = memory.checkpoint_slots * kept.fixed_bytes();
    EXPECT_GE(memory.item("checkpoints").bytes, kept_bytes);
    EXPECT_LT(memory.item("checkpoints").bytes, kept_bytes + 256) << "what alignment adds";
    EXPECT_GE(memory.item("tables").bytes, 2u * 48 * 512 * sizeof(uint32_t));
    EXPECT_EQ(memory.item("staging").bytes, planned->staging_slots() * memory.slot_bytes);
    EXPECT_EQ(memory.host_items[1].bytes, pinned_counts(real_shape().config, *planned).bytes());
    EXPECT_EQ(memory.host_items[3].use, "grammars");
    EXPECT_EQ(memory.host_items[0].bytes, 2 * memory.board.segment_bytes()) << "a worker and the own one";
  }
}

TEST_F(VramPlanTest, KeysAndValuesTakeWhatTheirFormatSays) {
  const auto kv = [&](const char* format) {
    set("device.kv", format);
    return plan(24 * kGiB)->memory.item("kv").bytes;
  };
  const uint64_t float32 = kv("float32"), float16 = kv("float16"), int8 = kv("int8");
  // 12 attention layers, 2 heads of 256, keys and values.
  const uint64_t values = uint64_t{12} * 32768 * 2 * 256 * 2;
  EXPECT_EQ(float32 - float16, values * 2);
  EXPECT_EQ(float16 - int8, values - values / 256 * 4) << "a scale a head";
}

TEST_F(VramPlanTest, ABudgetActsLikeASmallerCardAndTheReserveLiesOutsideItFirst) {
  set("device.vram_reserve", "1GiB");
  const VramInput card{.total_bytes = 24 * kGiB, .free_bytes = 23 * kGiB};
  VramShares shares = vram_shares(settings_, card);
  EXPECT_EQ(shares.in_use, kGiB);
  EXPECT_EQ(shares.reserve, kGiB);
  EXPECT_EQ(shares.available, 22 * kGiB);
  set("device.vram_budget", "16GiB");
  shares = vram_shares(settings_, card);
  EXPECT_EQ(shares.beyond_budget, 8 * kGiB);
  EXPECT_EQ(shares.reserve, 0u);
  EXPECT_EQ(shares.available, 15 * kGiB);
  set("device.vram_budget", "1GiB");
  EXPECT_EQ(vram_shares(settings_, card).available, 0u) << "all of it is in use";
}

TEST_F(VramPlanTest, AChosenChunkAndChosenSlotsAreKept) {
  set("engine.prefill_chunk_tokens", "512");
  set("experts.slots", "1000");
  const auto planned = plan(24 * kGiB);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned->memory.prefill_chunk_tokens, 512u);
  EXPECT_EQ(planned->limits.rows, 513u);
  EXPECT_EQ(planned->memory.slots, 1000u);
  set("experts.slots", "100%");
  EXPECT_NE(plan(24 * kGiB).error().message().find("lower experts.slots"), std::string::npos);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
