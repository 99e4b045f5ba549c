#include <cuda_runtime.h>

#include <cstring>

#include "cache-manager/arena_memory.h"
#include "services/base/check.h"

namespace strata::cache_manager {
namespace {

Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  return fail(Code::kInternal, "{}: {}: {}", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

class CudaArena final : public ArenaMemory {
 public:
  static Result<std::unique_ptr<ArenaMemory>> open(const cudaIpcMemHandle_t& handle, uint64_t bytes) {
    auto arena = std::make_unique<CudaArena>();
    arena->bytes_ = bytes;
    // No kernel runs here: what a card sets aside for their stacks is left to others (262 MiB of an H200).
    TRY_OK(status_of(cudaDeviceSetLimit(cudaLimitStackSize, 0), "giving up the stacks of kernels"));
    TRY_OK(status_of(cudaIpcOpenMemHandle(&arena->base_, handle, cudaIpcMemLazyEnablePeerAccess),
                     "opening the arena"));
    TRY_OK(
        status_of(cudaStreamCreateWithFlags(&arena->stream_, cudaStreamNonBlocking), "a stream for copies"));
    return arena;
  }
  ~CudaArena() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (base_ != nullptr) cudaIpcCloseMemHandle(base_);
  }

  Status write(uint64_t offset, std::span<const std::byte> bytes) override {
    CHECK(offset + bytes.size() <= bytes_, "{} bytes at {} of an arena of {}", bytes.size(), offset, bytes_);
    return status_of(cudaMemcpyAsync(static_cast<std::byte*>(base_) + offset, bytes.data(), bytes.size(),
                                     cudaMemcpyHostToDevice, stream_),
                     "copying an expert");
  }
  Status finish() override { return status_of(cudaStreamSynchronize(stream_), "copying an expert"); }

 private:
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<ArenaMemory>> cuda_arena(std::string_view ipc_handle, uint64_t bytes) {
  cudaIpcMemHandle_t handle;
  if (ipc_handle.size() != sizeof(handle))
    return fail(Code::kFailedPrecondition, "an IPC handle of {} bytes, CUDA's have {}", ipc_handle.size(),
                sizeof(handle));
  std::memcpy(&handle, ipc_handle.data(), sizeof(handle));
  return CudaArena::open(handle, bytes);
}

}  // namespace strata::cache_manager
