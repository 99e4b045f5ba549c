#pragma once
// Router, shared expert and the sum of the parts (model-qwen4exp section 8); the routed experts are the
// executor's business.

#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/model/moe_executor.h"
#include "services/model/parallel.h"

namespace strata::model {

// softmax over all logits, the ids.size() largest (equal: the lower id first), weights renormalized over
// them. Overwrites logits.
void route(std::span<float> logits, std::span<uint16_t> ids, std::span<float> weights);
// The same with ids that somebody else has chosen (routing_override.h): only the weights are computed. Equal
// ones if all their probabilities are 0.
void weigh_chosen(std::span<float> logits, std::span<const uint16_t> ids, std::span<float> weights);

class MoeBlock {
 public:
  MoeBlock(const ModelConfig& config, uint32_t experts_max, quant::Numerics numerics, uint32_t rows_max,
           Parallel& parallel);
  static uint64_t row_bytes(const ModelConfig& config, uint32_t experts_max);  // of the buffers, per row

  // Fills ids() and weights() from input (rows, H); the router's product is exact float32 always. `chosen`
  // (rows, k): the ids if somebody else has chosen them, else empty.
  void route_rows(const MoeWeights& weights, quant::Activations& input, std::span<const uint16_t> chosen);
  // Starts the routed experts, computes the shared one meanwhile and sums into output (rows, H).
  void run(const MoeWeights& weights, uint32_t layer, quant::Activations& input, MoeExecutor& experts,
           float* output);

  const uint16_t* ids() const { return ids_.data(); }       // (rows, k) router order
  const float* weights() const { return weights_.data(); }  // (rows, k)

 private:
  void run_shared(const MoeWeights& weights, quant::Activations& input);

  const ModelConfig& config_;
  const quant::Numerics numerics_;
  Parallel& parallel_;
  std::vector<float> logits_;       // (rows, E)
  std::vector<uint16_t> ids_;       // (rows, k)
  std::vector<float> weights_;      // (rows, k)
  std::vector<float> gate_, up_;    // (rows, Fs) of the shared expert
  std::vector<float> shared_;       // (rows, H)
  std::vector<float> shared_gate_;  // (rows)
};

}  // namespace strata::model
