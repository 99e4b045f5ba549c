#pragma once
// Copies of sequences' states: into checkpoint slots on the device, between sequences, and to and from host
// memory beside windows (Device, "Keeping states").
//
// What goes to or from the host goes through page-locked memory: the store's own may not be locked, because
// what is locked is taken, also where no snapshot lies. A page is one copy by the CPU and one launch; the
// fixed part is cut into pieces, so that the CPU copies one while the bus copies another.

#include <cuda_runtime.h>

#include <array>
#include <span>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/cuda/state_pieces.h"
#include "gpu-worker/cuda/state_staging.h"
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
  std::span<std::byte> half(uint32_t index) const;
  Status move_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                   StateDirection direction);

  StateLayout layout_;
  std::byte* slots_ = nullptr;
  uint32_t slot_count_ = 0;
  cudaStream_t windows_ = nullptr;
  cudaStream_t beside_ = nullptr;  // copies to and from the host overlap windows
  std::array<cudaEvent_t, kStagingHalves> copied_{};
  PinnedBuffer<std::byte> staging_;  // (halves, staging_half_bytes())
  PinnedBuffer<StatePiece> pieces_;  // of a page
  bool staging_is_zero_ = false;     // where no piece of a full page lies, in the first half
};

}  // namespace strata::gpu_worker::cuda
