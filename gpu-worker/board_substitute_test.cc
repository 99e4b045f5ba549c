// A board that its substitute answers holds what LocalExperts computes, for activations in both forms.

#include "gpu-worker/board_substitute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/expert_board_support.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker {
namespace {

using quant::Numerics;

class BoardSubstituteTest : public testing::TestWithParam<Numerics> {
 protected:
  BoardSubstituteTest()
      : weights_(open_model(tests::models_golden_model().string())),
        parallel_(2),
        substitute_(weights_, parallel_) {}
  void TearDown() override { shm::remove_stale_segments(run_); }

  // Writes the layer as a device does: all rows, pairs in ascending order of expert. Gives the pair behind
  // each part.
  std::vector<uint32_t> ask(const shm::Board& board, MadeUpLayer& layer, uint64_t ticket) const {
    const bool q8 = layer.input.has_q8() && GetParam() == Numerics::kReproducible;
    const uint32_t hidden = weights_.config.hidden;
    for (uint32_t row = 0; row < layer.routed.tokens; ++row) {
      const void* from = q8 ? static_cast<const void*>(layer.input.q8(row).q) : layer.input.f32(row);
      std::memcpy(board.activations(row), from, q8 ? quant::q8_row_bytes(hidden) : hidden * sizeof(float));
    }
    std::vector<uint32_t> order(layer.chosen.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](uint32_t pair) { return layer.chosen[pair]; });
    for (std::size_t i = 0; i < order.size(); ++i)
      board.pairs()[i] = {.token = static_cast<uint16_t>(order[i] / layer.routed.top_k),
                          .expert = layer.chosen[order[i]]};
    board.header().request = {.ticket = ticket,
                              .layer = layer.routed.layer,
                              .tokens = layer.routed.tokens,
                              .pair_count = static_cast<uint32_t>(order.size()),
                              .activations = q8 ? shm::ActivationKind::kQ8 : shm::ActivationKind::kF32,
                              .numerics = static_cast<uint32_t>(GetParam())};
    board.header().work.ring();
    return order;
  }

  const std::string run_ = "substitutetest";
  const model::ModelWeights weights_;
  model::Parallel parallel_;
  BoardSubstitute substitute_;
};

TEST_P(BoardSubstituteTest, AnswersEveryRequestWithTheBitsOfAWorker) {
  const uint32_t top_k = weights_.config.experts_used;
  const shm::BoardGeometry geometry{
      .hidden = weights_.config.hidden, .tokens_max = 9, .pairs_max = 9 * top_k};
  auto board = shm::Board::create(shm::segment_name(run_, "board", shm::random_instance_id()), geometry);
  ASSERT_TRUE(board) << board.error().message();
  EXPECT_FALSE(BoardSubstitute::is_asked(*board));
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) {
    const auto tokens = static_cast<uint32_t>(ticket == 4 ? 9 : ticket);
    MadeUpLayer layer(weights_, static_cast<uint32_t>(ticket), tokens, GetParam(),
                      40 + static_cast<uint32_t>(ticket));
    const std::vector<uint32_t> order = ask(*board, layer, ticket);
    ASSERT_TRUE(BoardSubstitute::is_asked(*board));
    EXPECT_EQ(substitute_.answer(*board), order.size());
    EXPECT_FALSE(BoardSubstitute::is_asked(*board));
    EXPECT_EQ(board->header().done_ticket.load(), ticket);
    const std::vector<float> expected = reference_parts(weights_, layer, GetParam());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const float* part = expected.data() + std::size_t{order[i]} * geometry.hidden;
      ASSERT_EQ(std::memcmp(board->part(static_cast<uint32_t>(i)), part, geometry.hidden * sizeof(float)), 0)
          << "pair " << order[i] << " of ticket " << ticket;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, BoardSubstituteTest,
                         testing::Values(Numerics::kReproducible, Numerics::kExact));

}  // namespace
}  // namespace strata::gpu_worker
