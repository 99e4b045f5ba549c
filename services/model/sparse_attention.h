#pragma once
// The sparse attention layer, QSA (model-qwen4exp section 7): every row attends to the blocks that its
// indexer chooses and to the unfinished tail. Tokens are taken in ascending order, so that "all blocks
// chosen" and "dense" are the same computation.

#include <functional>
#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"
#include "services/model/rope.h"
#include "services/model/window.h"

namespace strata::model {

// The `count` blocks with the largest scores, ascending; equal scores: the lower number. scratch:
// (scores.size()).
void choose_blocks(std::span<const float> scores, uint32_t count, std::span<float> scratch,
                   std::vector<uint32_t>& chosen);

class SparseAttention {
 public:
  using BlocksObserver = std::function<void(uint32_t layer, uint32_t row, std::span<const uint32_t> blocks)>;

  // Scores of one tile of rows: 16 MiB, so that a long prompt chunk at a long context does not need rows
  // times context.
  static constexpr std::size_t kTileFloats = std::size_t{4} << 20;

  SparseAttention(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max, const Rope& rope,
                  Parallel& parallel, std::size_t tile_floats = kTileFloats);
  // Of the buffers: per row, and of a tile of at most `rows` rows in sequences of `context_tokens`, which
  // grows with the positions.
  static uint64_t row_bytes(const ModelConfig& config);
  static uint64_t tile_bytes(const ModelConfig& config, uint32_t rows, uint32_t context_tokens);

  // output (rows, H) from input (rows, H); moves the layer's state of every sequence of the window on.
  void run(const AttentionWeights& weights, uint32_t layer, const Window& window, quant::Activations& input,
           float* output, const BlocksObserver& observer);

 private:
  // What one row of a tile attends to, and where its scratch lies.
  struct RowPlan {
    uint32_t row = 0;
    uint32_t blocks = 0;           // complete blocks
    bool chooses = false;          // false: everything is attended
    std::vector<uint32_t> chosen;  // ascending; when it chooses
    uint32_t tail_begin = 0;       // tokens tail_begin..position; 0 when everything is attended
    uint32_t attended = 0;         // tokens
    std::size_t block_scores = 0;  // offset in block_scores_, (blocks)
    std::size_t scores = 0;        // offset in scores_, (heads, attended)
  };

  struct HeadPlace {
    uint32_t block = 0;  // tokens
    uint32_t position = 0;
    uint32_t head = 0;
  };

  void prepare_rows(const AttentionWeights& weights, uint32_t layer, const Window& window);
  void finish_blocks(const AttentionWeights& weights, uint32_t layer, const Window& window);
  uint32_t plan_tile(uint32_t layer, const Window& window, uint32_t first_row);
  void choose(uint32_t layer, const Window& window);
  void attend(uint32_t layer, const Window& window);
  void attend_head(const RowPlan& plan, const AttentionState& state, const HeadPlace& place);

  const ModelConfig& config_;
  const quant::Numerics numerics_;
  const Rope& rope_;
  Parallel& parallel_;
  const std::size_t tile_floats_;
  std::vector<float> queries_;          // (rows, nq, 2, d): query and gate of each head
  std::vector<float> keys_, values_;    // (rows, nkv, d)
  std::vector<float> indexer_queries_;  // (rows, ni, di)
  std::vector<float> indexer_keys_;     // (rows, di) raw
  std::vector<float> heads_;            // (rows, nq, d)
  std::vector<float> block_turns_;      // (rows, 2, pairs): rotation of the block that ends with the row
  std::vector<RowPlan> plans_;          // rows of the present tile: the first tile_rows_
  uint32_t tile_rows_ = 0;
  std::vector<float> block_scores_, block_scratch_, scores_;
};

}  // namespace strata::model
