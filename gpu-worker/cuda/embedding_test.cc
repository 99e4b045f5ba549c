// The first state of the streams against quant::dequantize_row, to the bit.

#include "gpu-worker/cuda/embedding.h"

#include "gpu-worker/cuda/dense_test_support.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;

void expect_embedded(gguf::TensorType type, uint32_t hidden, float scale, uint32_t row_count) {
  SCOPED_TRACE(testing::Message() << gguf::tensor_type_info(type).name << ", " << hidden);
  constexpr uint32_t kVocabulary = 11, kStreams = 3;
  Generator random(hidden);
  const TestMatrix table = test_matrix(random, type, kVocabulary, hidden, scale);
  std::vector<RowInfo> rows(row_count);
  for (RowInfo& row : rows) row.token = static_cast<int32_t>(random.below(kVocabulary));
  rows.back().token = kVocabulary - 1;
  const auto device_rows = on_device(rows);
  const auto streams = device_zeros<float>(std::size_t{row_count} * kStreams * hidden);
  embed_tokens({.table = table.device,
                .window = {.row_count = row_count, .rows = device_rows.data()},
                .streams = streams.data(),
                .streams_count = kStreams},
               nullptr);

  std::vector<float> expected;
  for (const RowInfo& row : rows) {
    std::vector<float> values(hidden);
    quant::dequantize_row(type, table.host.row(static_cast<uint32_t>(row.token)), values.data(), hidden);
    if (scale != 1.0f) {
      for (float& v : values) v *= scale;
    }
    for (uint32_t c = 0; c < kStreams; ++c) expected.insert(expected.end(), values.begin(), values.end());
  }
  expect_same_bits(values_of(streams), expected, "streams");
}

TEST(Embedding, EveryType) {
  for (const gguf::TensorType type : quant::tests::all_types()) {
    expect_embedded(type, 256, 1.0f, 2);
    expect_embedded(type, 2560, 0.7f, 1);
  }
}

TEST(Embedding, ManyRowsAndOddSizes) {
  expect_embedded(gguf::TensorType::kQ8_0, 96, 1.0f, 300);
  for (const uint32_t hidden : {1u, 33u, 1025u}) expect_embedded(gguf::TensorType::kF16, hidden, 1.0f, 3);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
