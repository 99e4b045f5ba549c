#pragma once
// Byte strings with consecutive numbers. All bytes lie in one block, so a vocabulary of 248,320 entries costs
// three allocations and no copy per entry beyond its bytes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

using Symbol = uint32_t;
inline constexpr Symbol kNoSymbol = UINT32_MAX;

class SymbolTable {
 public:
  // Room for so many findable entries; more may come.
  explicit SymbolTable(std::size_t expected);

  // Gives the next number to these bytes. With findable = false, find() never returns it. Of equal entries
  // the first is found.
  Symbol add(std::string_view bytes, bool findable);
  Symbol find(std::string_view bytes) const;  // kNoSymbol: none

  std::string_view bytes(Symbol symbol) const {
    return std::string_view(block_).substr(begins_[symbol], begins_[symbol + 1] - begins_[symbol]);
  }
  std::size_t size() const { return begins_.size() - 1; }
  std::size_t total_bytes() const { return block_.size(); }

 private:
  std::size_t slot_of(std::string_view bytes) const;  // where it is or would go
  void grow();

  std::string block_;
  std::vector<uint64_t> begins_{0};
  std::vector<Symbol> slots_;  // open addressing with linear probing; a power of two, at most half full
  std::size_t findable_ = 0;
};

}  // namespace strata::tokenizer
