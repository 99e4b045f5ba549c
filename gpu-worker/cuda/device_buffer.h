#pragma once
// Memory that frees itself: DeviceBuffer<T> on the device, PinnedBuffer<T> page-locked on the host (device
// and host use the same address). Copies are synchronous: for loading and for tests, not for windows.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu-worker/cuda/runtime.h"
#include "services/base/check.h"
#include "services/base/status.h"

namespace strata::gpu_worker::cuda {

// `count` elements of T that `Memory` allocates and frees.
template <class T, class Memory>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) Memory::free(data_);
  }

  // Not initialized. kResourceExhausted when the memory is not there.
  static Result<Buffer> create(std::size_t count) {
    Buffer buffer;
    void* memory = nullptr;
    if (count > 0) TRY_CUDA(Memory::allocate(&memory, count * sizeof(T)));
    buffer.data_ = static_cast<T*>(memory);
    buffer.size_ = count;
    return buffer;
  }
  static Result<Buffer> of(std::span<const T> values) {
    TRY(Buffer buffer, create(values.size()));
    TRY_OK(buffer.upload(values));
    return buffer;
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  // Everything that is queued on blocking streams comes before; the copy is complete when the call returns.
  Status upload(std::span<const T> values, std::size_t first = 0) {
    CHECK(first <= size_ && values.size() <= size_ - first, "{} + {} of {}", first, values.size(), size_);
    TRY_CUDA(cudaMemcpy(data_ + first, values.data(), values.size_bytes(), cudaMemcpyDefault));
    return {};
  }
  Result<std::vector<T>> download() const {
    std::vector<T> values(size_);
    TRY_CUDA(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDefault));
    return values;
  }
  Status zero() {
    if (size_ == 0) return {};
    TRY_CUDA(cudaMemset(data_, 0, bytes()));
    TRY_CUDA(cudaStreamSynchronize(nullptr));
    return {};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

struct DeviceMemory {
  static cudaError_t allocate(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
  static void free(void* memory) { cudaFree(memory); }
};
struct PinnedMemory {
  static cudaError_t allocate(void** memory, std::size_t bytes) {
    return cudaHostAlloc(memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  }
  static void free(void* memory) { cudaFreeHost(memory); }
};

template <class T>
using DeviceBuffer = Buffer<T, DeviceMemory>;

// Also host memory: span() reads and writes it in place.
template <class T>
class PinnedBuffer : public Buffer<T, PinnedMemory> {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Buffer<T, PinnedMemory>&& buffer) : Buffer<T, PinnedMemory>(std::move(buffer)) {}
  static Result<PinnedBuffer> create(std::size_t count) {
    TRY(auto buffer, (Buffer<T, PinnedMemory>::create(count)));
    return PinnedBuffer(std::move(buffer));
  }
  std::span<T> span() const { return {this->data(), this->size()}; }
};

}  // namespace strata::gpu_worker::cuda
