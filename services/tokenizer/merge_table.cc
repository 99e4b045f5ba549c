#include "services/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "services/base/check.h"

namespace strata::tokenizer {

MergeTable::MergeTable(std::size_t expected) : slots_(std::bit_ceil(2 * expected + 2)), capacity_(expected) {}

std::size_t MergeTable::slot_of(Symbol left, Symbol right) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing of the pair; the upper half of the product is the well-mixed one.
  const uint64_t pair = (uint64_t{left} << 32) | right;
  std::size_t slot = ((pair * 0x9E3779B97F4A7C15u) >> 32) & mask;
  while (slots_[slot].left != kNoSymbol && (slots_[slot].left != left || slots_[slot].right != right)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void MergeTable::add(Symbol left, Symbol right, Symbol joined) {
  CHECK(count_ < capacity_, "more than the {} merges announced", capacity_);
  if (Slot& slot = slots_[slot_of(left, right)]; slot.left == kNoSymbol)
    slot = {left, right, {count_, joined}};
  ++count_;
}

const MergeTable::Merge* MergeTable::find(Symbol left, Symbol right) const {
  const Slot& slot = slots_[slot_of(left, right)];
  return slot.left == kNoSymbol ? nullptr : &slot.merge;
}

void Merger::offer(uint32_t position) {
  const Node& node = nodes_[position];
  if (node.next == kNone) return;
  const Symbol right = nodes_[node.next].symbol;
  if (const auto* merge = table_->find(node.symbol, right); merge != nullptr) {
    heap_.push_back({merge->rank, position, node.symbol, right, merge->joined});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
}

void Merger::merge(std::vector<Symbol>& symbols) {
  CHECK(symbols.size() < kNone, "a piece of {} bytes", symbols.size());
  const auto count = static_cast<uint32_t>(symbols.size());
  nodes_.clear();
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i)
    nodes_.push_back({symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  for (uint32_t i = 0; i < count; ++i) offer(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Node& node = nodes_[best.position];
    if (node.symbol != best.left || node.next == kNone || nodes_[node.next].symbol != best.right) continue;
    node.symbol = best.joined;
    nodes_[node.next].symbol = kNoSymbol;
    node.next = nodes_[node.next].next;
    if (node.next != kNone) nodes_[node.next].previous = best.position;
    offer(best.position);
    if (node.previous != kNone) offer(node.previous);
  }
  symbols.clear();
  for (const Node& node : nodes_) {
    if (node.symbol != kNoSymbol) symbols.push_back(node.symbol);
  }
}

}  // namespace strata::tokenizer
