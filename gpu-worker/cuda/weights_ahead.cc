#include "gpu-worker/cuda/weights_ahead.h"

#include <algorithm>

#include "gpu-worker/cuda/device_model.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {

WeightsAhead weights_ahead(const DeviceModel& model, std::size_t layer, uint64_t bytes) {
  WeightsAhead ahead;
  const auto add = [&](std::initializer_list<const DeviceMatrix*> matrices) {
    for (const DeviceMatrix* matrix : matrices) {
      const uint64_t part = std::min(bytes, matrix->rows * matrix->row_bytes);
      if (part == 0) continue;
      CHECK(ahead.count < WeightsAhead::kSpansMax);
      ahead.spans[ahead.count++] = {matrix->data, part};
      bytes -= part;
    }
  };
  if (layer == model.layers.size()) {
    add({&model.final_mixer.down, &model.final_mixer.up, &model.head});
    return ahead;
  }
  const DeviceLayer& next = model.layers[layer];
  if (static_cast<int64_t>(layer) == model.ngram_layer) add({&model.ngram.key, &model.ngram.value});
  add({&next.mix_attn.down, &next.mix_attn.up});
  if (next.kind == model::LayerKind::kRecurrent) {
    add({&next.delta.qkv, &next.delta.gate, &next.delta.out});
  } else {
    add({&next.attention.q, &next.attention.k, &next.attention.v, &next.attention.out});
  }
  add({&next.mix_ffn.down, &next.mix_ffn.up});
  return ahead;
}

}  // namespace strata::gpu_worker::cuda
