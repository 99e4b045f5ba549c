#pragma once
// How the state of a sequence (model-qwen4exp section 10) is cut for keeping it outside the device: a fixed
// part, whose size does not depend on the position and which changes with every token, and pages of keys,
// values and block keys, which no later token changes. Both are blobs: the arrays of the state one behind the
// other. Devices that name equal arrays exchange states, whatever else they are.

#include <cstdint>
#include <string>
#include <vector>

namespace strata::gpu_worker {

// Tokens of a page: a multiple of the blocks of every layer.
inline constexpr uint32_t kStatePageTokens = 64;

struct StateArray {
  std::string name;          // "keys.3": the part and its layer
  uint64_t bytes = 0;        // of a sequence of full length
  uint32_t unit_tokens = 0;  // 0: in the fixed part; otherwise a unit appears with so many tokens
  uint64_t unit_bytes = 0;
};

class StateLayout {
 public:
  // A range of bytes of one array, and where it lies in a blob.
  struct Piece {
    uint32_t array = 0;
    uint64_t at = 0;  // in the array
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the blob
  };
  struct Part {
    std::string name;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  StateLayout() = default;
  // unit_tokens must divide kStatePageTokens.
  explicit StateLayout(std::vector<StateArray> arrays);

  const std::vector<StateArray>& arrays() const { return arrays_; }
  uint64_t fixed_bytes() const { return fixed_bytes_; }
  uint64_t page_bytes() const { return page_bytes_; }
  // What the blobs hold; the rest of a blob is zero.
  const std::vector<Part>& fixed_parts() const { return fixed_parts_; }
  // XXH3 of names, sizes and places: states of one hash can be exchanged.
  uint64_t hash() const;

  std::vector<Piece> fixed_pieces() const;
  // Of the page's tokens those below `tokens`, the length of the sequence.
  std::vector<Piece> page_pieces(uint32_t page, uint32_t tokens) const;

 private:
  std::vector<StateArray> arrays_;
  std::vector<uint64_t> offsets_;  // (arrays) in the blob that the array belongs to
  std::vector<Part> fixed_parts_;
  uint64_t fixed_bytes_ = 0;
  uint64_t page_bytes_ = 0;
};

// Pages that a sequence of so many tokens has, the last one perhaps partly filled.
constexpr uint32_t state_pages(uint32_t tokens) { return (tokens + kStatePageTokens - 1) / kStatePageTokens; }

}  // namespace strata::gpu_worker
