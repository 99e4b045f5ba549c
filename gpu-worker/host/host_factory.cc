#include "gpu-worker/device_factory.h"
#include "gpu-worker/host/host_device.h"
#include "services/expert/thread_plan.h"
#include "services/model/record_checksum.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {
namespace {

class HostFactory final : public DeviceFactory {
 public:
  HostFactory(const DeviceInputs& inputs, MemoryPlan plan) : inputs_(inputs), plan_(std::move(plan)) {}
  const MemoryPlan& plan() const override { return plan_; }

  Result<std::unique_ptr<Device>> create(const DeviceSurroundings& around) const override {
    const bool exact = inputs_.settings->numerics() == "exact";
    TRY(auto device,
        HostDevice::create(
            {.weights = inputs_.weights,
             .plan = plan_,
             .numerics = exact ? quant::Numerics::kExact : quant::Numerics::kReproducible,
             .threads = expert::host_device_threads(*inputs_.settings, around.topology),
             .run_id = around.run_id,
             .workers = around.workers,
             .routing = around.routing,
             .verify_records = model::verifies_records(inputs_.settings->experts_verify_records().value)}));
    return device;
  }

 private:
  DeviceInputs inputs_;
  MemoryPlan plan_;
};

}  // namespace

Result<std::unique_ptr<DeviceFactory>> host_device_factory(const DeviceInputs& inputs) {
  if (inputs.settings->numerics() == "fast")
    obs::warn("device",
              "numerics: fast is for the cuda device; the host device computes as under reproducible");
  TRY(auto plan, make_host_plan(*inputs.weights, *inputs.settings, inputs.context_tokens,
                                sys::available_memory_bytes()));
  return std::make_unique<HostFactory>(inputs, std::move(plan));
}

}  // namespace strata::gpu_worker
