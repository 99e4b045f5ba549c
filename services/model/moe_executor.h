#pragma once
// Where the routed experts of a layer are computed is not the model's business: the forward pass hands the
// routed pairs to an executor. The gpu-worker's splits them between the arena and the expert workers; tests
// use LocalExperts.

#include <cstdint>
#include <span>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::model {

struct RoutedLayer {
  uint32_t layer = 0;
  uint32_t tokens = 0;
  uint32_t top_k = 0;
  const quant::Activations* input = nullptr;  // (tokens, H); q8 form made when the layer's experts need it
  const uint16_t* experts = nullptr;          // (tokens, top_k), router order
};

class MoeExecutor {
 public:
  virtual ~MoeExecutor() = default;
  // Starts the layer: misses are on their way when it returns. The caller computes the shared expert
  // meanwhile.
  virtual void begin(const RoutedLayer& routed) = 0;
  // Blocks until every part is there: (tokens * top_k) pointers to `hidden` float32 each, the unweighted
  // output of that pair's expert. Valid until the next begin().
  virtual std::span<const float* const> finish() = 0;
};

// Computes every expert from the mapped file on the calling thread.
class LocalExperts final : public MoeExecutor {
 public:
  LocalExperts(const ModelWeights& weights, quant::Numerics numerics);
  void begin(const RoutedLayer& routed) override;
  std::span<const float* const> finish() override;

 private:
  const ModelWeights& weights_;
  quant::Numerics numerics_;
  expert::ExpertScratch scratch_;
  std::vector<float> parts_;                     // (pairs, hidden)
  std::vector<const float*> rows_;               // (pairs) into parts_
  std::vector<uint32_t> starts_, next_, order_;  // pairs grouped by expert
  std::vector<uint32_t> tokens_;                 // (pairs) in that order
  std::vector<float*> outputs_;                  // (pairs) in that order
};

}  // namespace strata::model
