// An attention layer on the device against model::SparseAttention: cache, chosen blocks and output, bit for
// bit, over windows that cut two sequences in different ways. Windows of at most 16 rows take the kernels for
// few rows; in longer ones heads of 64 and 256 values have their own scores' kernel.
#include "gpu-worker/cuda/attention_test_support.h"

namespace strata::gpu_worker::cuda::tests {
namespace {

const std::vector<std::vector<uint32_t>> kWindows = {{5, 3}, {1, 1}, {2, 0}, {0, 13}, {25, 31}, {1, 1},
                                                     {1, 1}, {1, 1}, {3, 1}, {1, 1},  {20, 1},  {7, 9}};

void expect_same_over_windows(const LayerCase& layer, KvFormat format,
                              const std::vector<std::vector<uint32_t>>& windows) {
  LayerTwins twins(layer, format, 11);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "window " << i);
    twins.run(windows[i]);
    twins.expect_same();
    if (testing::Test::HasFatalFailure()) return;
  }
}

class AttentionFormatTest : public testing::TestWithParam<KvFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, AttentionFormatTest,
                         testing::Values(KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8));

TEST_P(AttentionFormatTest, SmallLayer) { expect_same_over_windows({}, GetParam(), kWindows); }

// Several tiles of weights, and the kernel for 12 heads that share keys.
TEST_P(AttentionFormatTest, ManyTokensAreAttended) {
  expect_same_over_windows({.heads = 12,
                            .kv_heads = 1,
                            .head_dim = 64,
                            .indexer_heads = 4,
                            .indexer_dim = 32,
                            .top_k_tokens = 300,
                            .rope_dims = 32,
                            .capacity = 400},
                           GetParam(), {{128, 0}, {128, 0}, {70, 0}, {1, 3}, {20, 20}, {4, 1}});
}

// The size of real heads, five to a key: a warp of threads has one of them and three that do not exist.
TEST_P(AttentionFormatTest, HeadsOf256) {
  expect_same_over_windows({.heads = 5,
                            .kv_heads = 1,
                            .head_dim = 256,
                            .indexer_dim = 32,
                            .top_k_tokens = 48,
                            .rope_dims = 32,
                            .capacity = 200},
                           GetParam(), {{60, 17}, {1, 1}, {65, 0}, {20, 33}});
}

TEST_P(AttentionFormatTest, WithoutAnIndexerEverythingIsAttended) {
  expect_same_over_windows({.heads = 4, .kv_heads = 4, .block_tokens = 0}, GetParam(), kWindows);
}

TEST_P(AttentionFormatTest, HeadsThatAreNoMultipleOf32) {
  expect_same_over_windows({.heads = 6,
                            .kv_heads = 2,
                            .head_dim = 48,
                            .indexer_heads = 3,
                            .indexer_dim = 24,
                            .block_tokens = 3,
                            .top_k_tokens = 9,
                            .rope_dims = 12},
                           GetParam(), kWindows);
}

TEST(AttentionTest, HeadsThatAreNoMultipleOf16) {
  expect_same_over_windows(
      {.heads = 2, .kv_heads = 1, .head_dim = 20, .indexer_heads = 5, .indexer_dim = 12, .rope_dims = 4},
      KvFormat::kF32, kWindows);
}

// More heads to a key than one block of threads takes.
TEST(AttentionTest, ThirteenHeadsShareAKey) {
  expect_same_over_windows({.heads = 13, .kv_heads = 1, .head_dim = 64}, KvFormat::kF32,
                           {{5, 0}, {40, 18}, {0, 1}});
  expect_same_over_windows({.heads = 26, .kv_heads = 2}, KvFormat::kF32, {{5, 0}, {1, 1}, {40, 0}, {0, 1}});
}

// Behind the first and the last row of a sequence, within a block and where one ends; keys that a tail does
// not count are those of the state before.
TEST_P(AttentionFormatTest, CapturesStatesWithinAWindow) {
  LayerTwins twins({}, GetParam(), 12);
  twins.run({5, 3}, {0, 3, 4, 6});
  twins.expect_same();
  twins.run({2, 30}, {0, 7, 8, 9, 10, 20, 31});
  twins.expect_same();
  twins.run({1, 1});
  twins.expect_same();
}

TEST(AttentionTest, CapturesNothingOfALayerWithoutBlocks) {
  for (const uint32_t block_tokens : {0u, 1u}) {
    LayerTwins twins({.block_tokens = block_tokens}, KvFormat::kF32, 12);
    twins.run({9, 3}, {4, 9});
    twins.expect_same();
  }
}

TEST(AttentionTest, BlocksOfOneToken) {
  expect_same_over_windows({.block_tokens = 1, .top_k_tokens = 7}, KvFormat::kF32, kWindows);
}

TEST(AttentionTest, RowsOfOneWindowInTilesOfTheScratch) {
  expect_same_over_windows({.score_rows = 3}, KvFormat::kF32, kWindows);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::tests
