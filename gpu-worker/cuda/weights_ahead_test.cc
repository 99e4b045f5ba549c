#include "gpu-worker/cuda/weights_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu-worker/cuda/device_model.h"
#include "services/synthetic/model_outline.h"
#include "services/synthetic/model_spec.h"

namespace strata::gpu_worker::cuda {
namespace {

model::ModelWeights outline() {
  const auto plan = synthetic::plan_model(synthetic::parse_model_spec("demo-shape").value()).value();
  return model::load_model(synthetic::open_outline(plan).value()).value();
}

class WeightsAheadTest : public testing::Test {
 protected:
  WeightsAheadTest() {
    Placer counting;
    place_model(weights_, counting, nullptr);
    memory_.resize(counting.used_bytes());
    Placer placer(memory_.data());
    model_ = place_model(weights_, placer, nullptr);
  }
  // Every span is the next matrix, whole but for the last, and together they are `bytes` or all.
  void expect_first_of(const WeightsAhead& ahead, const std::vector<const DeviceMatrix*>& order,
                       uint64_t bytes) {
    ASSERT_LE(ahead.count, order.size());
    uint64_t left = bytes, all = 0;
    for (uint32_t i = 0; i < ahead.count; ++i) {
      EXPECT_EQ(ahead.spans[i].begin, order[i]->data);
      EXPECT_EQ(ahead.spans[i].bytes, std::min(order[i]->rows * order[i]->row_bytes, left));
      left -= ahead.spans[i].bytes;
    }
    for (const DeviceMatrix* matrix : order) all += matrix->rows * matrix->row_bytes;
    EXPECT_EQ(bytes - left, std::min(bytes, all));
  }

  const model::ModelWeights weights_ = outline();
  std::vector<std::byte> memory_;
  DeviceModel model_;
};

TEST_F(WeightsAheadTest, IsWhatALayerReadsFirst) {
  ASSERT_GE(model_.ngram_layer, 0);
  for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
    SCOPED_TRACE(layer);
    const DeviceLayer& next = model_.layers[layer];
    std::vector<const DeviceMatrix*> order;
    if (static_cast<int32_t>(layer) == model_.ngram_layer) order = {&model_.ngram.key, &model_.ngram.value};
    order.insert(order.end(), {&next.mix_attn.down, &next.mix_attn.up});
    if (next.kind == model::LayerKind::kRecurrent) {
      order.insert(order.end(), {&next.delta.qkv, &next.delta.gate, &next.delta.out});
    } else {
      order.insert(order.end(),
                   {&next.attention.q, &next.attention.k, &next.attention.v, &next.attention.out});
    }
    order.insert(order.end(), {&next.mix_ffn.down, &next.mix_ffn.up});
    uint64_t all = 0;
    for (const DeviceMatrix* matrix : order) all += matrix->rows * matrix->row_bytes;
    for (const uint64_t bytes : {uint64_t{1} << 40, all, all - 1, all / 2, uint64_t{1}})
      expect_first_of(weights_ahead(model_, layer, bytes), order, bytes);
  }
}

TEST_F(WeightsAheadTest, EndsWithTheHead) {
  const WeightsAhead ahead = weights_ahead(model_, model_.layers.size(), uint64_t{1} << 40);
  ASSERT_EQ(ahead.count, 3u);
  expect_first_of(ahead, {&model_.final_mixer.down, &model_.final_mixer.up, &model_.head}, uint64_t{1} << 40);
}

TEST_F(WeightsAheadTest, IsNothingWithoutACache) { EXPECT_EQ(weights_ahead(model_, 0, 0).count, 0u); }

}  // namespace
}  // namespace strata::gpu_worker::cuda
