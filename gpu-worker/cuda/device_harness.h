#pragma once
// A cuda device by itself, without a cluster around it, for tests and benchmarks: its expert boards, and an
// arena that is filled by hand.

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu-worker/cuda/cuda_device.h"
#include "gpu-worker/cuda/delta_net.h"
#include "services/base/check.h"
#include "services/config/settings.h"

namespace strata::gpu_worker::cuda {

class DeviceHarness {
 public:
  DeviceHarness(const model::ModelWeights& weights, const config::Settings& settings, uint32_t context_tokens,
                const std::string& run_id, uint32_t threads = 2, model::RoutingOverride* routing = nullptr)
      : weights_(weights) {
    auto vram = open_gpu();
    CHECK(vram.has_value(), "{}", vram.error().message());
    vram->chunks_delta = can_chunk_delta_net(weights.config.state_dim);
    auto plan = make_vram_plan(weights, settings, context_tokens, *vram);
    CHECK(plan.has_value(), "{}", plan.error().message());
    plan_ = *plan;
    workers_ = std::make_unique<ExpertWorkers>(ExpertWorkersOptions{.run_id = run_id,
                                                                    .geometry = plan_.memory.board,
                                                                    .lost_after_ms = 1000,
                                                                    .expected = 0,
                                                                    .keep_awake = true});
    auto device = CudaDevice::create({.weights = &weights,
                                      .plan = plan_,
                                      .threads = threads,
                                      .run_id = run_id,
                                      .workers = workers_.get(),
                                      .routing = routing});
    CHECK(device.has_value(), "{}", device.error().message());
    device_ = std::move(*device);
  }

  Device& device() { return *device_; }
  ExpertWorkers& workers() { return *workers_; }
  const VramPlan& plan() const { return plan_; }

  // Puts `count` experts into the first slots, spread over the layers, beginning with expert `first`.
  void fill(uint32_t count, uint32_t first = 0) {
    const ArenaHandle arena = device_->arena();
    ResidentTable& residents = device_->residents();
    const uint64_t epoch = residents.begin_attachment();
    std::vector<std::byte> record(arena.slot_bytes);
    for (uint32_t slot = 0; slot < count; ++slot) {
      const auto layer = static_cast<uint32_t>(slot % weights_.layers.size());
      const model::LayerExperts& experts = weights_.layers[layer].moe.experts;
      const auto expert = static_cast<uint32_t>((first + slot / weights_.layers.size()) % experts.count);
      const ExpertExchange exchange{.slot = slot, .layer = layer, .expert = expert};
      const auto retired = residents.retire(epoch, {&exchange, 1});
      CHECK(retired.has_value() && *retired == std::vector<bool>{true}, "slot {}", slot);
      experts.write_record(expert, record.data());
      CHECK(cudaMemcpy(residents.slots() + slot * arena.slot_bytes, record.data(), experts.record_bytes(),
                       cudaMemcpyHostToDevice) == cudaSuccess,
            "slot {}", slot);
      CHECK(residents.land(epoch, {&slot, 1}).has_value(), "slot {}", slot);
    }
    residents.end_attachment(epoch);
  }

 private:
  const model::ModelWeights& weights_;
  VramPlan plan_;
  std::unique_ptr<ExpertWorkers> workers_;
  std::unique_ptr<Device> device_;
};

}  // namespace strata::gpu_worker::cuda
