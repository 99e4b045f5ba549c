#include "gpu-worker/cuda/window_input.h"

namespace strata::gpu_worker::cuda {

WindowInput place_input(const model::ModelConfig& config, const WindowShape& shape, bool forced_routing,
                        Placer& placer) {
  const uint64_t rows = shape.rows, turn = config.rope.dims / 2 * 2;
  WindowInput input{.rows = placer.take<RowInfo>(rows),
                    .segments = placer.take<SegmentInfo>(shape.segments),
                    .turns = placer.take<float>(rows * turn),
                    .block_turns = placer.take<float>(rows * turn),
                    .embedded = placer.take<float>(rows * config.hidden),
                    .chosen = placer.take<uint32_t>(shape.logit_rows),
                    .samples = placer.take<SampleRow>(shape.logit_rows)};
  if (config.ngram_layer >= 0) input.ngram = placer.take<float>(rows * config.hidden);
  if (forced_routing) input.forced_ids = placer.take<uint16_t>(config.layers * rows * config.experts_used);
  return input;
}

}  // namespace strata::gpu_worker::cuda
