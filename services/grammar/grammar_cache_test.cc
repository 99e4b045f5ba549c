#include "services/grammar/grammar_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

TEST(GrammarCache, GivesTheSameGrammarForTheSameText) {
  GrammarCache cache(byte_vocabulary(), {});
  const auto first = cache.get("root ::= \"a\"");
  const auto other = cache.get("root ::= \"b\"");
  const auto again = cache.get("root ::= \"a\"");
  ASSERT_TRUE(first && other && again);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(cache.size(), 2U);
}

TEST(GrammarCache, KeepsNothingThatDoesNotCompile) {
  GrammarCache cache(byte_vocabulary(), {});
  EXPECT_EQ(cache.get("root ::= ").has_value(), true) << "the empty text";
  EXPECT_EQ(cache.get("root ::= x").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache.size(), 1U);
}

TEST(GrammarCache, DropsWhatWasUsedLongestAgo) {
  GrammarCache cache(byte_vocabulary(), {.bytes_max = 1});
  const auto first = cache.get("root ::= \"a\"");
  ASSERT_TRUE(cache.get("root ::= \"b\"").has_value());
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_NE(*cache.get("root ::= \"a\""), *first);
  EXPECT_TRUE(matches(*first, "a")) << "whoever holds it can go on";
}

TEST(GrammarCache, MakesMasksLaterThatThereWasNoTimeFor) {
  GrammarCache cache(byte_vocabulary(), {.prepare = std::chrono::milliseconds(0)});
  EXPECT_FALSE(cache.prepare_more(std::chrono::milliseconds(1))) << "there is no grammar";
  std::vector<std::shared_ptr<const Grammar>> grammars;
  for (const char* text : {"root ::= [a-z]{2,90}", "root ::= \"(\" root \")\" | [0-9]{3}"})
    grammars.push_back(*cache.get(text));
  while (cache.prepare_more(std::chrono::milliseconds(1))) {
  }
  for (const auto& grammar : grammars) {
    const std::size_t prepared = grammar->memory_bytes();
    EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
    EXPECT_EQ(grammar->memory_bytes(), prepared);
  }
}

TEST(GrammarCache, MakesNoMasksBeforehandOfAGrammarThatIsLarge) {
  GrammarCache cache(byte_vocabulary(), {.bytes_max = 1, .prepare = std::chrono::milliseconds(0)});
  const auto grammar = *cache.get("root ::= [a-z]{2,90}");
  const std::size_t before = grammar->memory_bytes();
  EXPECT_TRUE(cache.prepare_more(std::chrono::hours(1)));
  EXPECT_FALSE(cache.prepare_more(std::chrono::hours(1)));
  EXPECT_EQ(grammar->memory_bytes(), before);
}

TEST(GrammarCache, ThreadsMayAskForTheSame) {
  GrammarCache cache(byte_vocabulary(), {});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n) EXPECT_TRUE(cache.get(fmt::format("root ::= \"{}\"*", n)).has_value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 20U);
}

}  // namespace
}  // namespace strata::grammar
