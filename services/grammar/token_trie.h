#pragma once
// The ordinary tokens of a vocabulary as a tree by their bytes, laid out flat in preorder: walking it with an
// automaton reads each shared beginning once, and skipping what a byte rules out is one assignment.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::grammar {

class TokenTrie {
 public:
  struct Entry {
    std::string_view bytes;
    int32_t id = 0;
  };
  // The bytes are copied; none may be empty or longer than 255.
  explicit TokenTrie(std::vector<Entry> entries);

  // Node 0 is the root. The children of node i are i + 1, end(i + 1), ... while below end(i).
  uint32_t node_count() const { return static_cast<uint32_t>(bytes_.size()); }
  uint8_t byte(uint32_t node) const { return bytes_[node]; }
  uint32_t depth(uint32_t node) const { return depths_[node]; }
  uint32_t end(uint32_t node) const { return ends_[node]; }
  // Tokens that end at this node.
  std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(first_token_[node], first_token_[node + 1] - first_token_[node]);
  }
  // Tokens that end at this node or below it.
  std::span<const int32_t> tokens_from(uint32_t node) const {
    return std::span(tokens_).subspan(first_token_[node], first_token_[ends_[node]] - first_token_[node]);
  }

  // What is below a node with many descendants, where all of it is UTF-8 text and the node ends between
  // characters: an automaton that such text does not lead anywhere need not walk there.
  struct PlainText {
    uint32_t node = 0;
    std::array<uint64_t, 2> ascii = {};  // bit b % 64 of word b / 64: the byte b < 128 is there
    bool beyond_ascii = false;
  };
  std::span<const PlainText> plain_texts() const { return plain_texts_; }  // by node

  std::size_t memory_bytes() const;

 private:
  void find_plain_texts();

  std::vector<uint8_t> bytes_;         // (nodes)
  std::vector<uint8_t> depths_;        // (nodes)
  std::vector<uint32_t> ends_;         // (nodes)
  std::vector<uint32_t> first_token_;  // (nodes + 1) into tokens_
  std::vector<int32_t> tokens_;        // by bytes
  std::vector<PlainText> plain_texts_;
};

}  // namespace strata::grammar
