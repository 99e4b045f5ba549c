#pragma once
// The merges of a BPE vocabulary and their application to one piece of text.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/tokenizer/symbol_table.h"

namespace strata::tokenizer {

class MergeTable {
 public:
  explicit MergeTable(std::size_t expected);

  // Ranks are given in the order of the calls; of equal pairs the first counts.
  void add(Symbol left, Symbol right, Symbol joined);

  struct Merge {
    uint32_t rank = 0;
    Symbol joined = kNoSymbol;
  };
  // nullptr: the pair does not merge.
  const Merge* find(Symbol left, Symbol right) const;

 private:
  struct Slot {
    Symbol left = kNoSymbol;  // kNoSymbol: free
    Symbol right = kNoSymbol;
    Merge merge;
  };
  std::size_t slot_of(Symbol left, Symbol right) const;

  std::vector<Slot>
      slots_;  // open addressing; a power of two, at most half full: `expected` is the most that fit
  std::size_t capacity_;
  uint32_t count_ = 0;
};

// Joins neighbouring symbols by ascending rank, the leftmost first among equals, until no pair merges. Work
// is n log n for a piece of n symbols: pieces come from requests and may be as long as one. Reused between
// pieces to save allocations.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(&table) {}
  // Replaces symbols by the merged ones.
  void merge(std::vector<Symbol>& symbols);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    Symbol symbol;  // kNoSymbol: was joined to its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t position;   // of the left node
    Symbol left, right;  // stale once the nodes hold other symbols
    Symbol joined;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  void offer(uint32_t position);

  const MergeTable* table_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace strata::tokenizer
