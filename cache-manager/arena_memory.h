#pragma once
// The slots of the gpu-worker as the cache manager writes them: shared memory of the host device, or memory
// of a GPU through CUDA IPC. Used by the copy thread; kept alive by whoever still writes.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "services/base/status.h"
#include "services/shm/arena.h"

namespace strata::cache_manager {

class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  // Copies to `offset` from slot 0's first byte. The source stays as it is until finish().
  virtual Status write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Everything written is there.
  virtual Status finish() = 0;
};

std::unique_ptr<ArenaMemory> segment_arena(shm::Segment segment);

// Never launches a kernel: contexts take turns on a GPU, copies do not (docs/decisions/110). kUnimplemented:
// a build without CUDA.
Result<std::unique_ptr<ArenaMemory>> cuda_arena(std::string_view ipc_handle, uint64_t bytes);

}  // namespace strata::cache_manager
