// The choice of blocks at contexts as long as real ones, against scores by plain loops and
// model::choose_blocks.
#include "gpu-worker/cuda/attention_blocks.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/sparse_attention.h"

namespace strata::gpu_worker::cuda::tests {
namespace {

struct ChoiceCase {
  uint32_t blocks_max = 0;
  uint32_t wanted = 0;
  std::vector<uint32_t> positions = {};  // one row each, all of one sequence
  bool ties = false;                     // small integers: many equal scores
  uint32_t score_rows = 1000;
};

void expect_same_choice(const ChoiceCase& choice) {
  constexpr uint32_t kHeads = 4, kDim = 32, kBlock = 4;
  Generator random(5);
  const auto rows = static_cast<uint32_t>(choice.positions.size());
  const auto values = [&](std::size_t count) {
    std::vector<float> out = random_floats(random, count);
    if (choice.ties) {
      for (float& value : out)
        value = random.below(40) == 0 ? static_cast<float>(static_cast<int32_t>(random.below(3)) - 1) : 0.0f;
    }
    return out;
  };
  const std::vector<float> pooled = values(std::size_t{choice.blocks_max} * kDim),
                           queries = values(std::size_t{rows} * kHeads * kDim);
  std::vector<RowInfo> infos;
  for (const uint32_t position : choice.positions) infos.push_back({.position = position});
  const auto device_pooled = on_device(pooled), device_queries = on_device(queries);
  const auto device_rows = on_device(infos);
  const auto scores = device_zeros<float>(std::size_t{choice.score_rows} * choice.blocks_max);
  const auto chosen = device_zeros<uint32_t>(std::size_t{rows} * choice.wanted);
  attention_blocks({.shape = {.block_tokens = kBlock,
                              .indexer_heads = kHeads,
                              .indexer_dim = kDim,
                              .top_k_tokens = choice.wanted * kBlock},
                    .cache = {.capacity = choice.blocks_max * kBlock, .pooled = device_pooled.data()},
                    .window = {.row_count = rows, .rows = device_rows.data()},
                    .indexer_q = {device_queries.data(), kHeads * kDim},
                    .scores = scores.data(),
                    .score_rows = choice.score_rows,
                    .chosen = chosen.data()},
                   nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto actual = values_of(chosen);
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t blocks = (choice.positions[row] + 1) / kBlock;
    std::vector<float> expected_scores(blocks, 0.0f), scratch(blocks);
    for (uint32_t b = 0; b < blocks; ++b) {
      for (uint32_t h = 0; h < kHeads; ++h) {
        const float dot = quant::dot_f32(queries.data() + (std::size_t{row} * kHeads + h) * kDim,
                                         pooled.data() + std::size_t{b} * kDim, kDim);
        expected_scores[b] += dot > 0 ? dot : 0.0f;
      }
    }
    std::vector<uint32_t> expected;
    model::choose_blocks(expected_scores, std::min(blocks, choice.wanted), scratch, expected);
    const auto first = actual.begin() + std::size_t{row} * choice.wanted;
    ASSERT_EQ(std::vector<uint32_t>(first, first + expected.size()), expected) << "row " << row;
  }
}

TEST(AttentionBlocksTest, OneRowOfALongSequence) {
  expect_same_choice({.blocks_max = 9000, .wanted = 512, .positions = {35000}});
  // More tiles of keys than blocks of threads.
  expect_same_choice({.blocks_max = 20000, .wanted = 512, .positions = {79997}, .ties = true});
}

TEST(AttentionBlocksTest, AsManyBlocksAsAreChosenAndOneMore) {
  expect_same_choice({.blocks_max = 100,
                      .wanted = 33,
                      .positions = {0, 3, 33 * 4 - 2, 33 * 4 - 1, 34 * 4 - 2, 34 * 4 - 1, 399}});
}

TEST(AttentionBlocksTest, ManyRows) {
  ChoiceCase choice{.blocks_max = 700, .wanted = 50, .score_rows = 70};
  for (uint32_t row = 0; row < 150; ++row) choice.positions.push_back(row * 18 + 100);
  expect_same_choice(choice);
  choice.ties = true;
  expect_same_choice(choice);
}

TEST(AttentionBlocksTest, AllScoresAreZero) {
  // Positive keys and no query: relu leaves nothing, the lowest blocks are taken.
  const auto pooled = on_device(std::vector<float>(5000 * 8, 1.0f)), queries = device_zeros<float>(8);
  const auto rows = on_device(std::vector<RowInfo>{{.position = 19999}});
  const auto scores = device_zeros<float>(5000);
  const auto chosen = device_zeros<uint32_t>(300);
  attention_blocks({.shape = {.block_tokens = 4, .indexer_heads = 1, .indexer_dim = 8, .top_k_tokens = 1200},
                    .cache = {.capacity = 20000, .pooled = pooled.data()},
                    .window = {.row_count = 1, .rows = rows.data()},
                    .indexer_q = {queries.data(), 8},
                    .scores = scores.data(),
                    .score_rows = 1,
                    .chosen = chosen.data()},
                   nullptr);
  const auto actual = values_of(chosen);
  for (uint32_t b = 0; b < 300; ++b) ASSERT_EQ(actual[b], b);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::tests
