// The device that the emulation shows, and the texts of errors.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu-worker/cuda/emulation/block.h"
#include "gpu-worker/cuda/emulation/memory.h"
#include "gpu-worker/cuda/emulation/stream.h"

namespace strata::gpu_worker::cuda::emulation {

int sm_version() {
  static const int version = [] {
    const char* text = std::getenv("STRATA_EMULATED_SM");
    if (text == nullptr) return 90;
    const int wanted = std::atoi(text);
    if (wanted < 75 || wanted > 129) die(fmt::format("STRATA_EMULATED_SM={}: expected 75 to 129", text));
    return wanted;
  }();
  return version;
}

namespace {

// Few, because each block costs time here, and more than one, so that work is divided.
constexpr int kMultiprocessors = 8;

struct SharedMemory {
  int block_optin;
  int multiprocessor;
};
// CUDA C++ programming guide, "Technical Specifications per Compute Capability".
SharedMemory shared_memory() {
  switch (sm_version()) {
    case 75:
      return {64 * 1024, 64 * 1024};
    case 80:
    case 87:
      return {163 * 1024, 164 * 1024};
    case 90:
    case 100:
    case 103:
      return {227 * 1024, 228 * 1024};
    default:
      return {99 * 1024, 100 * 1024};
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::emulation

using namespace strata::gpu_worker::cuda::emulation;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return remember(cudaErrorPeerAccessUnsupported); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Emulated sm_%d", sm_version());
  std::memcpy(properties->uuid.bytes, "strata-emulated", 16);
  properties->totalGlobalMem = memory().total();
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(shared_memory().block_optin);
  properties->sharedMemPerMultiprocessor = static_cast<std::size_t>(shared_memory().multiprocessor);
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = sm_version() == 75 ? 1024 : 2048;
  properties->multiProcessorCount = kMultiprocessors;
  properties->major = sm_version() / 10;
  properties->minor = sm_version() % 10;
  properties->l2CacheSize = 256 << 10;  // small: half of it is fetched byte by byte at each wait
  properties->memoryBusWidth = 6144;
  properties->asyncEngineCount = 3;
  properties->concurrentKernels = 1;
  properties->canMapHostMemory = 1;
  properties->unifiedAddressing = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_memory().block_optin;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = shared_memory().multiprocessor;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
      *value = 1;
      return cudaSuccess;
  }
  return remember(cudaErrorInvalidValue);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return value <= shared_memory().block_optin ? cudaSuccess : remember(cudaErrorInvalidValue);
}

const char* cudaGetErrorName(cudaError_t error) {
#define STRATA_ERROR(name) \
  case name:               \
    return #name;
  switch (error) {
    STRATA_ERROR(cudaSuccess)
    STRATA_ERROR(cudaErrorInvalidValue)
    STRATA_ERROR(cudaErrorMemoryAllocation)
    STRATA_ERROR(cudaErrorInitializationError)
    STRATA_ERROR(cudaErrorInvalidConfiguration)
    STRATA_ERROR(cudaErrorInvalidDevice)
    STRATA_ERROR(cudaErrorNoDevice)
    STRATA_ERROR(cudaErrorPeerAccessUnsupported)
    STRATA_ERROR(cudaErrorInvalidResourceHandle)
    STRATA_ERROR(cudaErrorNotReady)
    STRATA_ERROR(cudaErrorPeerAccessAlreadyEnabled)
    STRATA_ERROR(cudaErrorHostMemoryAlreadyRegistered)
    STRATA_ERROR(cudaErrorHostMemoryNotRegistered)
    STRATA_ERROR(cudaErrorNotSupported)
    STRATA_ERROR(cudaErrorStreamCaptureUnsupported)
    STRATA_ERROR(cudaErrorStreamCaptureInvalidated)
    STRATA_ERROR(cudaErrorStreamCaptureUnmatched)
    STRATA_ERROR(cudaErrorStreamCaptureUnjoined)
    STRATA_ERROR(cudaErrorStreamCaptureIsolation)
    STRATA_ERROR(cudaErrorCapturedEvent)
    STRATA_ERROR(cudaErrorGraphExecUpdateFailure)
  }
#undef STRATA_ERROR
  return "unrecognized error code";
}
// The real one has sentences; the name says enough here.
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
