#include "services/tokenizer/symbol_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "services/base/check.h"

namespace strata::tokenizer {

SymbolTable::SymbolTable(std::size_t expected) : slots_(std::bit_ceil(2 * expected + 2), kNoSymbol) {
  begins_.reserve(expected + 1);
}

std::size_t SymbolTable::slot_of(std::string_view bytes) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>()(bytes) & mask;
  while (slots_[slot] != kNoSymbol && this->bytes(slots_[slot]) != bytes) slot = (slot + 1) & mask;
  return slot;
}

Symbol SymbolTable::add(std::string_view bytes, bool findable) {
  CHECK(size() < kNoSymbol);
  const auto symbol = static_cast<Symbol>(size());
  block_.append(bytes);
  begins_.push_back(block_.size());
  if (!findable) return symbol;
  if (2 * (findable_ + 1) > slots_.size()) grow();
  if (Symbol& slot = slots_[slot_of(bytes)]; slot == kNoSymbol) {
    slot = symbol;
    ++findable_;
  }
  return symbol;
}

Symbol SymbolTable::find(std::string_view bytes) const { return slots_[slot_of(bytes)]; }

void SymbolTable::grow() {
  const std::vector<Symbol> old = std::exchange(slots_, std::vector<Symbol>(2 * slots_.size(), kNoSymbol));
  for (const Symbol symbol : old) {
    if (symbol != kNoSymbol) slots_[slot_of(bytes(symbol))] = symbol;
  }
}

}  // namespace strata::tokenizer
