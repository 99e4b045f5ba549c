#include "gpu-worker/cuda/experts_workspace.h"

#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {

ExpertsWorkspace divide_workspace(const LayerExpertsView& experts, uint32_t pairs, std::byte* at) {
  ExpertsWorkspace w;
  const auto take = [&](uint64_t bytes) {
    std::byte* part = at + w.bytes;
    w.bytes += (bytes + 63) / 64 * 64;
    return part;
  };
  const uint64_t width = experts.width();
  w.gate = {reinterpret_cast<float*>(take(pairs * width * sizeof(float))), width};
  w.up = {reinterpret_cast<float*>(take(pairs * width * sizeof(float))), width};
  if (gguf::tensor_type_info(experts.down.type).block_values != 1) {
    w.h = {.data = nullptr, .stride = q8_row_stride(experts.width()), .cols = experts.width()};
    w.h.data = take(pairs * w.h.stride);
  }
  w.tile_ends = reinterpret_cast<uint32_t*>(take(expert_groups_max(experts, pairs) * sizeof(uint32_t)));
  return w;
}

uint64_t experts_workspace_bytes(const LayerExpertsView& experts, uint32_t pairs) {
  return divide_workspace(experts, pairs, nullptr).bytes;
}

}  // namespace strata::gpu_worker::cuda
