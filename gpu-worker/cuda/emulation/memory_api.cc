// The memory functions of the runtime API: allocation, copies, sharing between processes.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu-worker/cuda/emulation/memory.h"
#include "gpu-worker/cuda/emulation/stream.h"

using namespace strata::gpu_worker::cuda::emulation;

namespace {

cudaError_t allocate(void** pointer, std::size_t bytes, Place place) {
  *pointer = nullptr;
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  if (bytes == 0) return cudaSuccess;
  *pointer = memory().allocate(bytes, place);
  return *pointer == nullptr ? remember(cudaErrorMemoryAllocation) : cudaSuccess;
}

// Like the real one, waits for everything that may still use the memory.
cudaError_t release(void* pointer, Place place, cudaError_t otherwise) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  wait_for_all();
  return memory().free(pointer, place) ? cudaSuccess : remember(otherwise);
}

struct Range {
  const void* begin;
  std::size_t bytes;
};

bool is_device(Place place) { return place == Place::kDevice || place == Place::kImported; }

// A range may not leave the allocation that it begins in, and what is said to be device memory must be memory
// that a device knows.
bool is_valid(const Range& range, bool on_device) {
  Allocation allocation;
  const std::byte* begin = nullptr;
  if (!memory().find(range.begin, allocation, begin)) return !on_device;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(range.begin) - begin);
  return range.bytes <= allocation.bytes - offset && (on_device || !is_device(allocation.place));
}

bool is_pageable(const void* pointer) {
  Allocation allocation;
  const std::byte* begin = nullptr;
  return !memory().find(pointer, allocation, begin);
}

bool copy_is_valid(const Range& to, const Range& from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return is_valid(to, to_device) && is_valid(from, from_device);
}

// Pageable memory is read or written before the call returns, as CUDA mostly does; a captured copy waits for
// its graph.
cudaError_t run_copy(cudaStream_t stream, const void* to, const void* from, Operation copy) {
  const cudaError_t error = enqueue(stream, NodeKind::kCopy, std::move(copy));
  if (error != cudaSuccess || (!is_pageable(to) && !is_pageable(from))) return remember(error);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status == cudaStreamCaptureStatusNone ? cudaStreamSynchronize(stream) : cudaSuccess;
}

struct IpcMemory {
  int process;
  int fd;
  std::size_t offset;
  std::size_t bytes;
};
static_assert(sizeof(IpcMemory) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = memory().free_bytes();
  *total = memory().total();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) { return allocate(pointer, bytes, Place::kDevice); }
cudaError_t cudaFree(void* pointer) { return release(pointer, Place::kDevice, cudaErrorInvalidValue); }
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate(pointer, bytes, Place::kHost);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate(pointer, bytes, Place::kHost);
}
cudaError_t cudaFreeHost(void* pointer) { return release(pointer, Place::kHost, cudaErrorInvalidValue); }

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  if (pointer == nullptr || bytes == 0) return remember(cudaErrorInvalidValue);
  return memory().add_registered(pointer, bytes) ? cudaSuccess
                                                 : remember(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* pointer) {
  return release(pointer, Place::kRegistered, cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  Allocation allocation;
  const std::byte* begin = nullptr;
  if (!memory().find(host, allocation, begin) || is_device(allocation.place))
    return remember(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Allocation allocation;
  const std::byte* begin = nullptr;
  auto* address = const_cast<void*>(pointer);
  if (!memory().find(pointer, allocation, begin)) {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
  } else if (is_device(allocation.place)) {
    *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
  } else {
    *attributes = {cudaMemoryTypeHost, 0, address, address};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!copy_is_valid({to, bytes}, {from, bytes}, kind)) return remember(cudaErrorInvalidValue);
  return run_copy(stream, to, from, [to, from, bytes] { std::memmove(to, from, bytes); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return remember(cudaErrorInvalidValue);
  if (width == 0 || height == 0) return cudaSuccess;
  const Range to_range = {to, to_pitch * (height - 1) + width};
  const Range from_range = {from, from_pitch * (height - 1) + width};
  if (!copy_is_valid(to_range, from_range, kind)) return remember(cudaErrorInvalidValue);
  return run_copy(stream, to, from, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                  static_cast<const std::byte*>(from) + row * from_pitch, width);
    }
  });
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  const cudaError_t error = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_valid({pointer, bytes}, true)) return remember(cudaErrorInvalidValue);
  return remember(
      enqueue(stream, NodeKind::kSet, [pointer, value, bytes] { std::memset(pointer, value, bytes); }));
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  return cudaMemsetAsync(pointer, value, bytes, nullptr);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  wait_for_all();  // nothing may write while the pages change
  Allocation shared;
  if (!memory().share(pointer, shared)) return remember(cudaErrorInvalidValue);
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - shared.mapping);
  const IpcMemory ipc = {getpid(), shared.fd, offset, shared.bytes};
  *handle = {};
  std::memcpy(handle, &ipc, sizeof(ipc));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
  IpcMemory ipc = {};
  std::memcpy(&ipc, &handle, sizeof(ipc));
  if (flags != cudaIpcMemLazyEnablePeerAccess) return remember(cudaErrorInvalidValue);
  if (ipc.process == getpid())
    return remember(cudaErrorInvalidResourceHandle);  // CUDA wants another process, too
  const int fd = open(fmt::format("/proc/{}/fd/{}", ipc.process, ipc.fd).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return remember(cudaErrorInvalidResourceHandle);
  *pointer = memory().import(fd, ipc.offset, ipc.bytes);
  close(fd);
  return *pointer == nullptr ? remember(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return release(pointer, Place::kImported, cudaErrorInvalidValue);
}
