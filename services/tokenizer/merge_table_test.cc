#include "services/tokenizer/merge_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace strata::tokenizer {
namespace {

TEST(SymbolTableTest, FindsWhatItWasToldToFind) {
  SymbolTable table(2);
  EXPECT_EQ(table.add("a", true), 0u);
  EXPECT_EQ(table.add("hidden", false), 1u);
  EXPECT_EQ(table.add("", true), 2u);
  EXPECT_EQ(table.add("a", true), 3u) << "equal entries have their own numbers";
  for (int i = 0; i < 1000; ++i) table.add(fmt::format("n{}", i), true);  // beyond what it was made for
  EXPECT_EQ(table.find("a"), 0u);
  EXPECT_EQ(table.find("hidden"), kNoSymbol);
  EXPECT_EQ(table.find(""), 2u);
  EXPECT_EQ(table.find("n999"), 1003u);
  EXPECT_EQ(table.find("n1000"), kNoSymbol);
  EXPECT_EQ(table.bytes(1), "hidden");
}

// The definition: scan for the pair of lowest rank, the leftmost among equals, join it, begin again.
std::vector<Symbol> merge_by_definition(const MergeTable& table, std::vector<Symbol> symbols) {
  while (true) {
    const MergeTable::Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto* merge = table.find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return symbols;
    symbols[at] = best->joined;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(MergerTest, AgreesWithTheDefinitionOnRandomTables) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
    MergeTable table(40);
    // Few symbols, and results that are again few symbols, so that merges meet and overlap all the time.
    for (int i = 0; i < 40; ++i) {
      const Symbol left = draw(6), right = draw(6);
      table.add(left, right, draw(8));
    }
    Merger merger(table);
    for (int round = 0; round < 20; ++round) {
      std::vector<Symbol> symbols(draw(60));
      for (Symbol& symbol : symbols) symbol = draw(6);
      const auto expected = merge_by_definition(table, symbols);
      merger.merge(symbols);
      ASSERT_EQ(symbols, expected) << "seed " << seed << " round " << round;
    }
  }
}

TEST(MergeTableTest, TheFirstOfEqualPairsCounts) {
  MergeTable table(2);
  table.add(1, 2, 10);
  table.add(1, 2, 11);
  EXPECT_EQ(table.find(1, 2)->joined, 10u);
  EXPECT_EQ(table.find(2, 1), nullptr);
}

}  // namespace
}  // namespace strata::tokenizer
