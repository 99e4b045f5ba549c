#include "gpu-worker/state_layout.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/base/status.h"

namespace strata::gpu_worker {
namespace {

constexpr uint64_t kArrayAlignment = 64;  // in a blob

uint64_t take(uint64_t& end, uint64_t bytes) {
  const uint64_t begin = end;
  end += (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  return begin;
}

}  // namespace

StateLayout::StateLayout(std::vector<StateArray> arrays) : arrays_(std::move(arrays)) {
  for (const StateArray& array : arrays_) {
    if (array.unit_tokens == 0) {
      offsets_.push_back(take(fixed_bytes_, array.bytes));
      fixed_parts_.push_back({array.name, offsets_.back(), array.bytes});
    } else {
      CHECK(kStatePageTokens % array.unit_tokens == 0, "{}: units of {} tokens in pages of {}", array.name,
            array.unit_tokens, kStatePageTokens);
      offsets_.push_back(take(page_bytes_, kStatePageTokens / array.unit_tokens * array.unit_bytes));
    }
  }
}

uint64_t StateLayout::hash() const {
  std::string text = fmt::format("pages of {} tokens\n", kStatePageTokens);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const StateArray& array = arrays_[i];
    // The length of a paged array is the context's, which does not change what a page holds.
    text += fmt::format("{} {} {} {} {}\n", array.name, array.unit_tokens == 0 ? array.bytes : 0,
                        array.unit_tokens, array.unit_bytes, offsets_[i]);
  }
  return XXH3_64bits(text.data(), text.size());
}

std::vector<StateLayout::Piece> StateLayout::fixed_pieces() const {
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < arrays_.size(); ++i) {
    if (arrays_[i].unit_tokens == 0) pieces.push_back({i, 0, arrays_[i].bytes, offsets_[i]});
  }
  return pieces;
}

std::vector<StateLayout::Piece> StateLayout::page_pieces(uint32_t page, uint32_t tokens) const {
  const uint64_t first = uint64_t{page} * kStatePageTokens;
  std::vector<Piece> pieces;
  if (first >= tokens) return pieces;
  const uint64_t count = std::min<uint64_t>(tokens - first, kStatePageTokens);
  for (uint32_t i = 0; i < arrays_.size(); ++i) {
    const StateArray& array = arrays_[i];
    if (array.unit_tokens == 0) continue;
    const uint64_t at = first / array.unit_tokens * array.unit_bytes;
    const uint64_t bytes = count / array.unit_tokens * array.unit_bytes;
    CHECK(at + bytes <= array.bytes, "{}: {} tokens are more than it has room for", array.name, tokens);
    if (bytes > 0) pieces.push_back({i, at, bytes, offsets_[i]});
  }
  return pieces;
}

}  // namespace strata::gpu_worker
