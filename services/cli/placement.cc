#include "services/cli/placement.h"

#include <fmt/format.h>

#include "gpu-worker/plan_table.h"

namespace strata::cli {

namespace {

uint64_t routed_bytes(const model::LayerExperts& layer) {
  return uint64_t{layer.count} * (layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes);
}

}  // namespace

Placement place(const model::ModelWeights& weights) {
  Placement placement;
  placement.expert_bytes_max = weights.max_expert_record_bytes();
  uint64_t routed = 0;
  for (const auto& layer : weights.layers) {
    const model::LayerExperts& experts = layer.moe.experts;
    placement.experts += experts.count;
    placement.experts_bytes += uint64_t{experts.count} * experts.record_bytes();
    routed += routed_bytes(experts);
  }
  for (const gguf::TensorInfo& tensor : weights.file.tensors()) {
    if (weights.config.ngram_layer >= 0 && tensor.data.data() == weights.ngram.table.data)
      placement.ngram_bytes = tensor.bytes;
    placement.dense_bytes += tensor.bytes;
  }
  placement.dense_bytes -= routed + placement.ngram_bytes;
  for (uint32_t percent : {10U, 25U, 50U, 100U}) {
    uint64_t slots = (placement.experts * percent + 50) / 100;
    placement.arenas.push_back(
        {.percent = percent, .slots = slots, .bytes = slots * placement.expert_bytes_max});
  }
  return placement;
}

std::string placement_text(const Placement& placement) {
  std::string out = "\nWhat fits where\n";
  out +=
      fmt::format("  always on the device     {:>12}  everything but routed experts and the n-gram table\n",
                  gpu_worker::bytes_text(placement.dense_bytes));
  out += fmt::format("  routed experts           {:>12}  {} of them, {} each at most\n",
                     gpu_worker::bytes_text(placement.experts_bytes), placement.experts,
                     gpu_worker::bytes_text(placement.expert_bytes_max));
  if (placement.ngram_bytes > 0) {
    out += fmt::format("  n-gram table             {:>12}  read from the file, a few rows per token\n",
                       gpu_worker::bytes_text(placement.ngram_bytes));
  }
  for (const auto& arena : placement.arenas) {
    out += fmt::format("  experts.slots: {:<9} {:>12}  arena of {} slots\n",
                       fmt::format("{}%", arena.percent), gpu_worker::bytes_text(arena.bytes), arena.slots);
  }
  return out;
}

std::string placement_json(const Placement& placement) {
  std::string arenas;
  for (const auto& arena : placement.arenas) {
    arenas += fmt::format("{}{{\"percent\":{},\"slots\":{},\"bytes\":{}}}", arenas.empty() ? "" : ",",
                          arena.percent, arena.slots, arena.bytes);
  }
  return fmt::format(
      "{{\"expert_bytes_max\":{},\"experts\":{},\"experts_bytes\":{},\"ngram_bytes\":{},\"dense_bytes\":{},"
      "\"arenas\":[{}]}}",
      placement.expert_bytes_max, placement.experts, placement.experts_bytes, placement.ngram_bytes,
      placement.dense_bytes, arenas);
}

}  // namespace strata::cli
