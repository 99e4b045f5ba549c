#pragma once
// Copies of states between a sequence's arrays and a blob, whatever memory they are in.

#include <cstddef>
#include <span>
#include <vector>

#include "gpu-worker/state_layout.h"

namespace strata::gpu_worker {

enum class StateDirection : uint8_t { kToBlob, kFromBlob };

// Calls copy(target, source, bytes) for the pieces; neighbours on both sides become one call.
template <class Copy>
void copy_state(const std::vector<StateLayout::Piece>& pieces, std::span<std::byte* const> arrays,
                std::byte* blob, StateDirection direction, Copy&& copy) {
  std::byte* array_at = nullptr;
  std::byte* blob_at = nullptr;
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (bytes == 0) return;
    if (direction == StateDirection::kToBlob) {
      copy(blob_at, array_at, bytes);
    } else {
      copy(array_at, blob_at, bytes);
    }
  };
  for (const StateLayout::Piece& piece : pieces) {
    std::byte* in_array = arrays[piece.array] + piece.at;
    std::byte* in_blob = blob + piece.offset;
    if (bytes > 0 && in_array == array_at + bytes && in_blob == blob_at + bytes) {
      bytes += piece.bytes;
      continue;
    }
    flush();
    array_at = in_array;
    blob_at = in_blob;
    bytes = piece.bytes;
  }
  flush();
}

}  // namespace strata::gpu_worker
