#pragma once
// The hashed n-gram embedding (model-qwen4exp section 5).

#include <functional>
#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"
#include "services/model/window.h"

namespace strata::model {

// Rows of the table for the token `context`[0] with its predecessors context[1], context[2], ..., as they
// stand in the sequence (before its start: the cut token). The cut rule is applied here. rows: one per hash
// head.
void ngram_table_rows(const ModelConfig& config, std::span<const int32_t> context, std::span<uint64_t> rows);

// The embedding (H) of a token with this context: those rows of the table, dequantized, side by side. `rows`:
// (ngram_rows) gets them.
void look_up_ngram(const ModelConfig& config, const NgramWeights& weights, std::span<const int32_t> context,
                   std::span<uint64_t> rows, float* embedded);

class NgramEmbedding {
 public:
  NgramEmbedding(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max, Parallel& parallel);
  static uint64_t row_bytes(const ModelConfig& config);  // of the buffers, per row

  // Adds to streams (rows, C, H); moves convolution and token history of every sequence of the window on.
  void run(const NgramWeights& weights, const Window& window, float* streams);

  std::span<const uint64_t> table_rows(uint32_t row) const;  // of the last run()
  const float* added() const { return gated_.data(); }       // (rows, C, H) of the last run()

 private:
  void look_up(const NgramWeights& weights, const Window& window);
  void gate_values(const NgramWeights& weights, uint32_t rows, const float* streams);
  void convolve(const NgramWeights& weights, const Window& window, float* streams);

  const ModelConfig& config_;
  const quant::Numerics numerics_;
  Parallel& parallel_;
  std::vector<uint64_t> table_rows_;  // (rows, heads)
  std::vector<float> embedded_;       // (rows, H)
  std::vector<float> keys_;           // (rows, C, H)
  std::vector<float> values_;         // (rows, H)
  std::vector<float> queries_;        // (rows, C, H) normed streams, later the convolution's output
  std::vector<float> gated_;          // (rows, C, H) gated values, later what is added
  std::vector<float> conv_input_;     // (rows, C, H)
};

}  // namespace strata::model
