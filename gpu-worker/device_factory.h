#pragma once
// A device in two steps: first its memory plan, which can be looked at and refused, then the device. One
// function per type; a build without CUDA has the cuda one all the same, which says so.

#include <memory>
#include <string>

#include "gpu-worker/device.h"
#include "gpu-worker/expert_workers.h"
#include "gpu-worker/plan.h"
#include "services/config/settings.h"
#include "services/model/model_weights.h"
#include "services/model/routing_override.h"
#include "services/sys/topology.h"

namespace strata::gpu_worker {

struct DeviceSurroundings {
  std::string run_id;
  sys::Topology topology;
  shm::WaitPolicy wait;                       // of the window loop for whatever computes
  std::vector<uint32_t> other_cpus = {};      // for threads that mostly sleep; empty: anywhere
  ExpertWorkers* workers = nullptr;           // outlives the device
  model::RoutingOverride* routing = nullptr;  // likewise; null: the router chooses
};

class DeviceFactory {
 public:
  virtual ~DeviceFactory() = default;
  virtual const MemoryPlan& plan() const = 0;
  virtual Result<std::unique_ptr<Device>> create(const DeviceSurroundings& around) const = 0;
};

// What a factory is made from; outlives it and the device.
struct DeviceInputs {
  const config::Settings* settings = nullptr;
  const model::ModelWeights* weights = nullptr;
  uint32_t context_tokens = 0;
};

// kResourceExhausted: the plan does not fit.
Result<std::unique_ptr<DeviceFactory>> host_device_factory(const DeviceInputs& inputs);
// Also kUnavailable: no GPU; kUnimplemented: no CUDA in this build, or a setting that this device does not
// know.
Result<std::unique_ptr<DeviceFactory>> cuda_device_factory(const DeviceInputs& inputs);

}  // namespace strata::gpu_worker
