// The chunked form of the delta-net against the recurrence of the host (model::DeltaNet): outputs and states
// agree within a tolerance, and to the bit among themselves wherever the contract of numerics: fast says so.

#include <optional>

#include "gpu-worker/cuda/delta_chunk_reference.h"
#include "gpu-worker/cuda/delta_net_test_support.h"

namespace strata::gpu_worker::cuda {
namespace {

using tests::DeltaLayer;
using tests::DeltaShape;

// Of root mean square errors. Two orders of float32 sums differ by some 1e-7: the emulation's, which rounds
// once, by 2e-7 to 4e-7 here; tensor cores cut sums off and may lose ten times as much.
constexpr double kErrorMax = 1e-5;

// With room for so many chunks at a time.
DeltaShape chunked(DeltaShape shape, uint64_t chunks = 1) {
  shape.chunk_floats = chunks * delta_chunk_floats(shape.value_heads, shape.dim);
  return shape;
}

class DeltaNetChunks : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_chunk_delta_net(32)) GTEST_SKIP() << "needs sm_80";
  }
};

void expect_near(DeltaLayer& layer, const std::vector<uint32_t>& row_counts) {
  const DeltaLayer::Outcome outcome = layer.run(row_counts);
  EXPECT_LT(outcome.error(), kErrorMax) << outcome.rows() << " rows";
  for (std::size_t i = 0; i < row_counts.size(); ++i) {
    if (row_counts[i] == 0) continue;
    EXPECT_LT(layer.state_error(i), kErrorMax) << "sequence " << i;
  }
}

TEST_F(DeltaNetChunks, AgreeWithTheRecurrenceForAllHeadSizes) {
  for (const uint32_t dim : {32u, 64u, 128u}) {
    if (!can_chunk_delta_net(dim)) continue;
    SCOPED_TRACE(testing::Message() << "heads of " << dim);
    DeltaLayer layer(chunked({.key_heads = 1, .value_heads = 3, .dim = dim}), 1, 150);
    EXPECT_GT(layer.run({64}).error(), 0.0) << "was it the recurrence after all?";
    expect_near(layer, {128});
    expect_near(layer, {150});
  }
}

TEST_F(DeltaNetChunks, BeginAtMultiplesFromTheStartOfASequence) {
  DeltaLayer layer(chunked({}, 2), 3, 300);
  expect_near(layer, {70, 1, 1});    // a chunk and a tail
  expect_near(layer, {1, 150, 5});   // 63 rows before two chunks
  expect_near(layer, {130, 1, 65});  // before, one chunk, behind; a segment longer than a chunk without any
  expect_near(layer, {64, 64, 64});
}

TEST_F(DeltaNetChunks, AgreeForLongPrompts) {
  DeltaLayer layer(chunked({.key_heads = 1, .value_heads = 2, .decay = 0.01f}, 5), 1, 2050);
  expect_near(layer, {2050});
}

TEST_F(DeltaNetChunks, AgreeForExtremeDecays) {
  // Decays of nearly 1 only, of 0 among others, and so strong that a log decay is below what exp() knows.
  for (const float decay : {1e-6f, 60.0f, 1e5f}) {
    SCOPED_TRACE(testing::Message() << "a down to " << -decay);
    DeltaLayer layer(chunked({.key_heads = 1, .value_heads = 4, .decay = decay}), 1, 320);
    expect_near(layer, {320});
  }
}

TEST_F(DeltaNetChunks, HeadsAndTaps) {
  for (const DeltaShape& shape : {DeltaShape{.key_heads = 3, .value_heads = 3, .taps = 1},
                                  DeltaShape{.key_heads = 1, .value_heads = 5}}) {
    DeltaLayer layer(chunked(shape), 1, 128);
    expect_near(layer, {128});
  }
}

// Cuts at multiples of a chunk, other sequences in the window and the room for chunks do not show.
TEST_F(DeltaNetChunks, GiveTheSameBitsHoweverAPromptIsCutAtMultiples) {
  std::optional<std::vector<float>> expected;
  const std::vector<std::vector<std::vector<uint32_t>>> all_cuts = {
      {{200, 0}}, {{64, 0}, {64, 1}, {72, 70}}, {{128, 33}, {72, 0}}, {{192, 64}, {8, 100}}};
  for (std::size_t i = 0; i < all_cuts.size(); ++i) {
    DeltaLayer layer(chunked({}, 1 + i), 2, 300);
    std::vector<float> heads;
    for (const std::vector<uint32_t>& window : all_cuts[i]) {
      const DeltaLayer::Outcome outcome = layer.run(window);
      heads.insert(heads.end(), outcome.heads.begin(),
                   outcome.heads.begin() + std::ptrdiff_t{window[0]} * outcome.values);
    }
    const std::vector<float> state = layer.state(0);
    heads.insert(heads.end(), state.begin(), state.end());
    if (!expected) expected = heads;
    tests::expect_same_bits(heads, *expected, "heads and state");
  }
}

// Captures at multiples do not show either, and are what windows that end there leave: of one sequence among
// others, in and between pieces of chunks.
TEST_F(DeltaNetChunks, GiveTheSameBitsAroundCapturesAtMultiples) {
  DeltaLayer cut(chunked({}, 2), 2, 300), whole(chunked({}, 2), 2, 300);
  std::vector<float> heads, states;
  for (const uint32_t rows : {64u, 128u, 30u}) {
    const DeltaLayer::Outcome outcome = cut.run({rows, 0});
    heads.insert(heads.end(), outcome.heads.begin(), outcome.heads.end());
    const std::vector<float> state = cut.state(0);
    states.insert(states.end(), state.begin(), state.end());
  }
  const DeltaLayer::Outcome outcome = whole.run({222, 70}, true, UINT32_MAX, {63, 191, 285});
  tests::expect_same_bits(outcome.heads, heads.data(), heads.size(), "heads");
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<float> state = outcome.captured->state(i);
    tests::expect_same_bits(state, states.data() + i * whole.state(0).size(), state.size(), "captured state");
  }
  tests::expect_same_bits(whole.state(0), cut.state(0), "state");
}

// A window of many short segments with a chunk among them, which as a whole counts as short.
TEST_F(DeltaNetChunks, AreComputedInWindowsOfManySequences) {
  constexpr uint32_t kSequences = 12;
  DeltaLayer alone(chunked({.key_heads = 1, .value_heads = 1}), kSequences, 80),
      together(chunked({.key_heads = 1, .value_heads = 1}), kSequences, 80);
  std::vector<uint32_t> one(kSequences, 0), all(kSequences, 1);
  one[3] = all[3] = 64;
  const DeltaLayer::Outcome expected = alone.run(one), outcome = together.run(all);
  tests::expect_same_bits({outcome.heads.begin() + std::ptrdiff_t{3} * outcome.values, outcome.heads.end()},
                          expected.heads.data(), expected.heads.size(), "heads");
}

TEST_F(DeltaNetChunks, LeaveGeneratedTokensAndShortPromptsToTheRecurrence) {
  DeltaLayer layer(chunked({}), 2, 140);
  const DeltaLayer::Outcome outcome = layer.run({70, 63}, /*prompts=*/false);
  EXPECT_EQ(outcome.error(), 0.0);
  layer.expect_window({58, 1});   // to the next multiple
  layer.expect_window({63, 60});  // one row short of a chunk; 60 rows around a multiple
}

// A fault must show in what follows, as far as the state.
TEST_F(DeltaNetChunks, LetNotANumberThrough) {
  DeltaLayer layer(chunked({.key_heads = 1, .value_heads = 1}), 1, 192);
  const DeltaLayer::Outcome outcome = layer.run({192}, true, 100);
  for (std::size_t i = 0; i < outcome.heads.size(); ++i) {
    const std::size_t row = i / outcome.values;
    if (row >= 64 && row < 100) continue;  // rows of the chunk before it may share its fate
    ASSERT_EQ(std::isnan(outcome.heads[i]), row >= 100) << "row " << row;
  }
  EXPECT_TRUE(std::isnan(layer.state(0)[0]));
}

// The formulas themselves, in double precision: what remains is rounding of the last bits.
TEST(DeltaChunkReference, IsTheRecurrence) {
  for (const uint32_t rows : {1u, 2u, 17u, 64u}) {
    const tests::DeltaChunk chunk = tests::made_up_chunk(8, rows, rows);
    const tests::DeltaChunkResult chunks = tests::chunked_reference(chunk),
                                  steps = tests::recurrent_reference(chunk);
    for (std::size_t i = 0; i < steps.out.size(); ++i) ASSERT_NEAR(chunks.out[i], steps.out[i], 1e-12) << i;
    for (std::size_t i = 0; i < steps.state.size(); ++i)
      ASSERT_NEAR(chunks.state[i], steps.state[i], 1e-12) << i;
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
