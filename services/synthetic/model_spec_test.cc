#include "services/synthetic/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::synthetic {
namespace {

using ::testing::HasSubstr;

TEST(ModelSpec, ThePresetHasTheSizesOfTheReleasedModel) {
  const auto request = parse_model_spec("qwen3.8-flash-next");
  ASSERT_TRUE(request);
  const auto plan = plan_model(*request);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->tensors.size(), 1224u) << "as many as the released trunk has";
  uint64_t routed = 0, table = 0, others = 0;
  for (const TensorPlan& tensor : plan->tensors) {
    uint64_t& kind = tensor.name.find("_exps") != std::string::npos ? routed
                     : tensor.name.find("per_layer_token") == 0     ? table
                                                                    : others;
    kind += tensor.values();
  }
  EXPECT_NEAR(static_cast<double>(routed), 120.8e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(others), 4.9e9, 0.06e9);
  EXPECT_LT(table, 60e6) << "small unless asked for";
  const auto full = plan_model(*parse_model_spec("qwen3.8-flash-next:ngram=full"));
  ASSERT_TRUE(full);
  EXPECT_NEAR(static_cast<double>(full->bytes() - plan->bytes()), 28.8e9, 0.1e9);
}

TEST(ModelSpec, ReadsWhatIsChangedOfAPreset) {
  const auto request = parse_model_spec(
      "qwen3.8-flash-next:layers=4:experts=64:types=Q2_K/Q4_0:dense=Q5_0:ngram=small:seed=9");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->shape.layers, 4u);
  EXPECT_EQ(request->shape.experts, 64u);
  EXPECT_EQ(request->shape.hidden, 2560u);
  EXPECT_EQ(request->types.gate_up, TensorType::kQ2_K);
  EXPECT_EQ(request->types.down, TensorType::kQ4_0);
  EXPECT_EQ(request->types.dense, TensorType::kQ5_0);
  EXPECT_EQ(request->types.head, TensorType::kQ5_0);
  EXPECT_EQ(request->seed, 9u);
  EXPECT_THAT(request->name, HasSubstr("SYNTHETIC"));
  EXPECT_THAT(request->made_of, HasSubstr("layers=4"));
  EXPECT_TRUE(request->shape.has_attention(3));
  EXPECT_EQ(parse_model_spec("demo-shape:types=Q8_0")->types.down, TensorType::kQ8_0);
}

TEST(ModelSpec, NamesThePartThatIsWrongAndWhatThereIs) {
  const auto fault = [](std::string_view text) {
    const auto request = parse_model_spec(text);
    if (!request) return request.error().message();
    const auto plan = plan_model(*request);
    return plan ? std::string("none") : plan.error().message();
  };
  EXPECT_THAT(fault("qwen"), HasSubstr("demo-shape"));
  EXPECT_THAT(fault(""), HasSubstr("demo-shape"));
  EXPECT_THAT(fault("demo-shape:"), HasSubstr("expected layers=N"));
  EXPECT_THAT(fault("demo-shape:layer=2"), HasSubstr("'layer=2'"));
  EXPECT_THAT(fault("demo-shape:layers=0"), HasSubstr("layers=0"));
  EXPECT_THAT(fault("demo-shape:experts=5"), HasSubstr("at least 6"));
  EXPECT_THAT(fault("demo-shape:types=Q9"), HasSubstr("Q2_0"));
  EXPECT_THAT(fault("demo-shape:ngram=big"), HasSubstr("ngram=big"));
  EXPECT_THAT(fault("qwen3.8-flash-next:types=Q2_K"), HasSubstr("ffn_down_exps: rows of 640"));
}

}  // namespace
}  // namespace strata::synthetic
