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
  find_plain_texts();
}

namespace {

// Where in a character a text is: how many continuation bytes are still to come, and what the next may be.
struct InCharacter {
  uint8_t left = 0, low = 0x80, high = 0xBF;
  bool bad = false;
};

InCharacter after(InCharacter at, uint8_t byte) {
  constexpr InCharacter kBad{.bad = true};
  if (at.bad) return kBad;
  if (at.left > 0) {
    if (byte < at.low || byte > at.high) return kBad;
    return {.left = static_cast<uint8_t>(at.left - 1)};
  }
  if (byte < 0x80) return {};
  if (byte >= 0xC2 && byte <= 0xDF) return {.left = 1};
  if (byte == 0xE0) return {.left = 2, .low = 0xA0};
  if (byte == 0xED) return {.left = 2, .high = 0x9F};  // no surrogates
  if (byte >= 0xE1 && byte <= 0xEF) return {.left = 2};
  if (byte == 0xF0) return {.left = 3, .low = 0x90};
  if (byte == 0xF4) return {.left = 3, .high = 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {.left = 3};
  return kBad;
}

}  // namespace

void TokenTrie::find_plain_texts() {
  constexpr uint32_t kDescendantsMin = 16;  // fewer are walked as fast
  std::vector<InCharacter> by_depth(256);
  std::vector<std::size_t> open;  // indexes into plain_texts_ of the nodes above
  std::vector<bool> bad(node_count());
  for (uint32_t node = 1; node < node_count(); ++node) {
    by_depth[depths_[node]] = after(by_depth[depths_[node] - 1U], bytes_[node]);
    while (!open.empty() && ends_[plain_texts_[open.back()].node] <= node) open.pop_back();
    for (const std::size_t i : open) {
      PlainText& above = plain_texts_[i];
      if (by_depth[depths_[node]].bad) bad[above.node] = true;
      if (bytes_[node] >= 0x80)
        above.beyond_ascii = true;
      else
        above.ascii[bytes_[node] / 64] |= uint64_t{1} << bytes_[node] % 64;
    }
    const InCharacter here = by_depth[depths_[node]];
    if (here.bad || here.left > 0 || ends_[node] - node <= kDescendantsMin) continue;
    open.push_back(plain_texts_.size());
    plain_texts_.push_back({.node = node});
  }
  std::erase_if(plain_texts_, [&](const PlainText& text) { return bad[text.node]; });
}

std::size_t TokenTrie::memory_bytes() const {
  return bytes_.size() * 2 + ends_.size() * sizeof(uint32_t) + first_token_.size() * sizeof(uint32_t) +
         tokens_.size() * sizeof(int32_t) + plain_texts_.size() * sizeof(PlainText);
}

}  // namespace strata::grammar
