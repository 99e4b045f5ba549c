#pragma once
// Reading and writing the residual streams (model-qwen4exp section 4). All products here are exact float32,
// whatever the type of the weights (section 13).

#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"

namespace strata::model {

class StreamMixer {
 public:
  StreamMixer(const ModelConfig& config, uint32_t rows_max, Parallel& parallel);
  static uint64_t row_bytes(const ModelConfig& config);  // of the buffers, per row

  // input (rows, H) from streams (rows, C, H). Keeps the inject weights for add().
  void read(const StreamMixerWeights& weights, const float* streams, uint32_t rows, float* input);
  // streams[c] = fma(w[c], output, streams[c]) with the weights of the last read().
  void add(const float* output, uint32_t rows, float* streams);

 private:
  const ModelConfig& config_;
  Parallel& parallel_;
  std::vector<float> normed_;  // (rows, C*H)
  std::vector<float> low_;     // (rows, R)
  std::vector<float> mask_;    // (rows, C*H) before the sigmoid
  std::vector<float> inject_;  // (rows, C)
};

}  // namespace strata::model
