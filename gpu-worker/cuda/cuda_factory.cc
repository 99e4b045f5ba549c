#include "gpu-worker/cuda/cuda_device.h"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/device_factory.h"
#include "services/expert/thread_plan.h"
#include "services/obs/log.h"

namespace strata::gpu_worker {
namespace {

// Table rows of prompts and, rarely, experts of a lost worker.
constexpr uint32_t kHostThreads = 8;

class CudaFactory final : public DeviceFactory {
 public:
  CudaFactory(const DeviceInputs& inputs, cuda::VramPlan plan) : inputs_(inputs), plan_(std::move(plan)) {}
  const MemoryPlan& plan() const override { return plan_.memory; }

  Result<std::unique_ptr<Device>> create(const DeviceSurroundings& around) const override {
    const uint32_t threads = expert::host_device_threads(*inputs_.settings, around.topology);
    TRY(auto device, cuda::CudaDevice::create({.weights = inputs_.weights,
                                               .plan = plan_,
                                               .threads = std::min(threads, kHostThreads),
                                               .run_id = around.run_id,
                                               .workers = around.workers,
                                               .routing = around.routing,
                                               .wait = around.wait,
                                               .other_cpus = around.other_cpus}));
    return device;
  }

 private:
  DeviceInputs inputs_;
  cuda::VramPlan plan_;
};

}  // namespace

Result<std::unique_ptr<DeviceFactory>> cuda_device_factory(const DeviceInputs& inputs) {
  if (inputs.settings->numerics() == "exact")
    return fail(Code::kUnimplemented,
                "numerics: exact is for the host device only; device.type: cuda has reproducible and fast");
  TRY(auto vram, cuda::open_gpu());
  vram.chunks_delta = cuda::can_chunk_delta_net(inputs.weights->config.state_dim);
  TRY(auto plan, cuda::make_vram_plan(*inputs.weights, *inputs.settings, inputs.context_tokens, vram));
  if (inputs.settings->numerics() == "fast" && !plan.limits.chunked_delta) {
    obs::warn("device",
              "numerics: fast: this GPU (it takes sm_80 and, for heads of 128, 157 KiB of shared memory a "
              "block) or "
              "this model (heads of {}) has no chunked delta-net; prompts are computed as under reproducible",
              inputs.weights->config.state_dim);
  }
  return std::make_unique<CudaFactory>(inputs, std::move(plan));
}

}  // namespace strata::gpu_worker
