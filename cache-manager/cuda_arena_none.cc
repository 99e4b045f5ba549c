#include "cache-manager/arena_memory.h"

namespace strata::cache_manager {

Result<std::unique_ptr<ArenaMemory>> cuda_arena(std::string_view /*ipc_handle*/, uint64_t /*bytes*/) {
  return fail(Code::kUnimplemented,
              "the gpu-worker's arena is on a GPU; this build of the cache manager has no CUDA");
}

}  // namespace strata::cache_manager
