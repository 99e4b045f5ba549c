#pragma once
// The Gated DeltaNet layer (model-qwen4exp section 6), in its recurrent form for prompts and decode alike:
// any cut of a sequence into windows gives the same bits (decision 040).

#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"
#include "services/model/window.h"

namespace strata::model {

class DeltaNet {
 public:
  DeltaNet(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max, Parallel& parallel);
  static uint64_t row_bytes(const ModelConfig& config);  // of the buffers, per row

  // output (rows, H) from input (rows, H); moves the layer's state of every sequence of the window on.
  void run(const DeltaNetWeights& weights, uint32_t layer, const Window& window, quant::Activations& input,
           float* output);

 private:
  void convolve(const DeltaNetWeights& weights, uint32_t layer, const Window& window);
  void normalize_heads(uint32_t rows);
  void recur(const DeltaNetWeights& weights, uint32_t layer, const Window& window);

  const ModelConfig& config_;
  const quant::Numerics numerics_;
  Parallel& parallel_;
  std::vector<float> qkv_;    // (rows, channels) before the convolution
  std::vector<float> mixed_;  // (rows, channels) after it: queries (nk, s), keys (nk, s), values (nv, s)
  std::vector<float> gate_;   // (rows, nv, s)
  std::vector<float> alpha_, beta_;  // (rows, nv)
  std::vector<float> heads_;         // (rows, nv, s) what the heads give, normed and gated
};

}  // namespace strata::model
