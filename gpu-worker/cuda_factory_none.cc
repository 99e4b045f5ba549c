#include "gpu-worker/device_factory.h"

namespace strata::gpu_worker {

Result<std::unique_ptr<DeviceFactory>> cuda_device_factory(const DeviceInputs& /*inputs*/) {
  return fail(
      Code::kUnimplemented,
      "device.type: this build has no cuda device; use device.type: host, or a build with STRATA_CUDA=ON");
}

}  // namespace strata::gpu_worker
