#pragma once
// Copies of sequences' states: into checkpoint slots on the device, between sequences, and to and from host
// memory beside windows (Device, "Keeping states").

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/state_layout.h"
#include "services/base/status.h"

namespace strata::gpu_worker::cuda {

class KeptStates {
 public:
  KeptStates() = default;
  // `slots`: device memory for slot_count fixed parts. `stream`: the windows'.
  static Result<KeptStates> create(StateLayout layout, std::byte* slots, uint32_t slot_count,
                                   cudaStream_t stream);
  KeptStates(KeptStates&& other) noexcept;
  KeptStates& operator=(KeptStates&& other) noexcept;
  ~KeptStates();

  const StateLayout& layout() const { return layout_; }
  uint32_t slot_count() const { return slot_count_; }

  // `arrays`: of the sequence, state_pointers().
  Status capture(std::span<std::byte* const> arrays, uint32_t slot);
  Status restore(std::span<std::byte* const> arrays, uint32_t slot);
  Status copy_pages(std::span<std::byte* const> from, std::span<std::byte* const> to, uint32_t tokens);
  Status read_slot(uint32_t slot, std::span<std::byte> to);
  Status write_slot(uint32_t slot, std::span<const std::byte> from);
  Status read_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                   std::span<std::byte> to);
  Status write_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                    std::span<const std::byte> from);

 private:
  std::byte* slot_at(uint32_t slot) const;

  StateLayout layout_;
  std::byte* slots_ = nullptr;
  uint32_t slot_count_ = 0;
  cudaStream_t windows_ = nullptr;
  cudaStream_t beside_ = nullptr;  // copies to and from the host overlap windows
};

}  // namespace strata::gpu_worker::cuda
