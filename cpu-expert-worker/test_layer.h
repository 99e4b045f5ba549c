#pragma once
// For tests: one layer of random experts, as it would lie in a file.

#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/quant/test_inputs.h"

namespace strata::cpu_expert_worker {

struct TestLayer {
  static constexpr uint32_t kHidden = 256;
  static constexpr uint32_t kExperts = 12;
  struct Types {
    quant::TensorType gate, up, down;
  };

  TestLayer(const Types& types, uint32_t width) {
    quant::tests::Generator random(width);
    const auto make = [&](quant::TensorType type, uint32_t rows, uint32_t cols, std::vector<std::byte>& data,
                          std::size_t& expert_bytes) {
      data = quant::tests::weights(random, type, kExperts * rows, cols);
      expert_bytes = data.size() / kExperts;
      return quant::Matrix{
          .type = type, .rows = rows, .cols = cols, .data = data.data(), .row_bytes = expert_bytes / rows};
    };
    layer.count = kExperts;
    layer.hidden = kHidden;
    layer.width = width;
    layer.gate = make(types.gate, width, kHidden, gate, layer.gate_expert_bytes);
    layer.up = make(types.up, width, kHidden, up, layer.up_expert_bytes);
    layer.down = make(types.down, kHidden, width, down, layer.down_expert_bytes);
  }
  TestLayer(const TestLayer&) = delete;
  std::span<const model::LayerExperts> layers() const { return {&layer, 1}; }

  std::vector<std::byte> gate, up, down;
  model::LayerExperts layer;
};

}  // namespace strata::cpu_expert_worker
