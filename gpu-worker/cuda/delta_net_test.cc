// The delta-net between its projections against model::DeltaNet, to the bit: outputs and states, over several
// windows of several sequences. The projections are those of the host, so that only what is tested differs.

#include "gpu-worker/cuda/delta_net_test_support.h"

namespace strata::gpu_worker::cuda {
namespace {

using Layer = tests::DeltaLayer;
using Shape = tests::DeltaShape;

TEST(DeltaNet, TokenByToken) {
  Layer layer({}, 1, 1);
  for (int i = 0; i < 7; ++i) layer.expect_window({1});
}

TEST(DeltaNet, AFewRowsOfSeveralSequences) {
  Layer layer({}, 3, 32);
  layer.expect_window({1, 1, 1});
  layer.expect_window({2, 0, 5});
  layer.expect_window({0, 1, 0});
  layer.expect_window({8, 3, 8});
  layer.expect_window({1, 2, 1});
}

TEST(DeltaNet, LongSegments) {
  Layer layer({}, 3, 200);
  layer.expect_window({9, 0, 0});
  layer.expect_window({0, 40, 3});
  layer.expect_window({1, 1, 1});
  layer.expect_window({1, 70, 1});
  layer.expect_window({16, 17, 24});
}

// As a whole the window counts as short, and its first sequence goes through it in several parts.
TEST(DeltaNet, ALongSegmentAmongShortOnes) {
  for (const uint32_t dim : {32u, 128u}) {
    Layer layer({.dim = dim}, 3, 24);
    layer.expect_window({22, 1, 1});
    layer.expect_window({1, 16, 2});
    layer.expect_window({1, 1, 1});
  }
}

TEST(DeltaNet, HeadSizesWithColumnsInRegisters) {
  for (const uint32_t dim : {64u, 128u}) {
    Layer layer({.value_heads = 4, .dim = dim}, 2, 64);
    layer.expect_window({1, 1});
    layer.expect_window({3, 2});
    layer.expect_window({20, 2});
    layer.expect_window({1, 30});
    layer.expect_window({1, 1});
  }
}

// The state stays in memory; heads that share no block of the 8-bit form, or parts of one.
TEST(DeltaNet, OtherHeadSizes) {
  for (const uint32_t dim : {1u, 7u, 8u, 16u, 48u, 96u, 160u}) {
    Layer layer({.value_heads = 4, .dim = dim}, 2, 40);
    layer.expect_window({1, 2});
    layer.expect_window({12, 20});
    layer.expect_window({1, 1});
  }
}

// In short and long windows, of several sequences, several of one, behind its first and its last row. The
// last size has no columns in registers.
TEST(DeltaNet, CapturesStatesWithinAWindow) {
  for (const uint32_t dim : {32u, 128u, 48u}) {
    Layer layer({.value_heads = 4, .dim = dim}, 3, 60);
    layer.expect_window({1, 1, 2}, {2});
    layer.expect_window({3, 0, 6}, {0, 3, 4, 7});
    layer.expect_window({12, 40, 1}, {4, 11, 12, 13, 30});
    layer.expect_window({1, 1, 1});
  }
}

TEST(DeltaNet, HeadsAndTaps) {
  for (const Shape& shape :
       {Shape{.key_heads = 1, .value_heads = 1}, Shape{.key_heads = 3, .value_heads = 3, .taps = 1},
        Shape{.key_heads = 1, .value_heads = 5, .taps = 2}, Shape{.taps = 9}}) {
    Layer layer(shape, 2, 40);
    layer.expect_window({1, 1});
    layer.expect_window({2, 1});
    layer.expect_window({30, 3}, {0, 17});
    layer.expect_window({1, 1});
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
