#include "gpu-worker/cuda/delta_net.h"

#include "gpu-worker/cuda/delta_net_chunks.cuh"
#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/quantize.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {

bool can_chunk_delta_net(uint32_t dim) {
  return has_register_state(dim) && has_tensor_cores() && can_scan_chunks(dim);
}

void delta_net(const DeltaNetArgs& args, cudaStream_t stream, const LayerCaptures& captures) {
  const WindowView& window = args.window;
  if (window.row_count == 0) return;
  const uint32_t value_dim = args.value_heads * args.dim;
  CHECK(args.key_heads > 0 && args.value_heads % args.key_heads == 0, "{} value heads of {} key heads",
        args.value_heads, args.key_heads);
  CHECK(args.dim > 0 && args.dim <= 1024, "heads of {} values", args.dim);
  CHECK(args.heads_q8.data == nullptr || args.heads_q8.cols == value_dim, "{} columns for {} values",
        args.heads_q8.cols, value_dim);

  CHECK(!has_register_state(args.dim) || args.state_stride % 4 == 0, "states {} floats apart",
        args.state_stride);

  // With the chunked form no window that may hold a chunk is short: a prompt must not depend on who shares
  // its window.
  const bool long_rows = window.row_count > kShortRows * window.segment_count || !captures.empty() ||
                         (args.log_decays != nullptr && window.row_count >= kDeltaChunk);
  if (long_rows && has_register_state(args.dim)) {
    delta_net_long(args, captures, stream);
    return;
  }
  for_each_stretch(
      captures.all, window.row_count, [&](RowRange stretch) { delta_net_short(args, stretch, stream); },
      [&](const StateCapture& capture) {
        keep_history(args, captures, capture, stream);
        keep_state(args, captures, capture, stream);
      });
  if (args.heads_q8.data != nullptr && args.dim % kWarp != 0) {
    quantize_q8(
        {.x = {args.heads, value_dim}, .rows = window.row_count, .cols = value_dim, .out = args.heads_q8},
        stream);
  }
}

}  // namespace strata::gpu_worker::cuda
