#include "services/grammar/token_trie.h"

#include <algorithm>

namespace strata::grammar {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  std::vector<uint32_t> path;  // the open nodes, root first
  const auto open = [&](uint8_t byte) {
    depths_.push_back(static_cast<uint8_t>(path.size()));
    path.push_back(static_cast<uint32_t>(bytes_.size()));
    bytes_.push_back(byte);
    ends_.push_back(0);
    first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
  };
  const auto close_to = [&](std::size_t depth) {
    while (path.size() > depth) {
      ends_[path.back()] = static_cast<uint32_t>(bytes_.size());
      path.pop_back();
    }
  };
  open(0);
  std::string_view previous;
  for (const Entry& entry : entries) {
    const auto differ =
        std::mismatch(previous.begin(), previous.end(), entry.bytes.begin(), entry.bytes.end());
    const auto shared = static_cast<std::size_t>(differ.first - previous.begin());
    close_to(1 + shared);
    for (std::size_t i = shared; i < entry.bytes.size(); ++i) open(static_cast<uint8_t>(entry.bytes[i]));
    tokens_.push_back(entry.id);
    previous = entry.bytes;
  }
  close_to(0);
  first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
}

std::size_t TokenTrie::memory_bytes() const {
  return bytes_.size() * 2 + ends_.size() * sizeof(uint32_t) + first_token_.size() * sizeof(uint32_t) +
         tokens_.size() * sizeof(int32_t);
}

}  // namespace strata::grammar
