#include "services/grammar/gbnf.h"

#include <gtest/gtest.h>

#include "services/grammar/limits.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

struct Example {
  std::string_view grammar;
  std::vector<std::string_view> matching;
  std::vector<std::string_view> other;
};

TEST(Gbnf, ReadsEveryConstruct) {
  const std::vector<Example> examples = {
      {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd", "Abc"}},
      {"root ::= \"\"", {""}, {"a"}},
      {"root ::= \"a\" \"b\"  \"c\" # a comment", {"abc"}, {"ab", "abca"}},
      {"root ::= \"a\" | \"bc\" | ", {"a", "bc", ""}, {"b", "abc"}},
      {"root ::= \"a\"\n  | \"b\"\n\n  | \"c\"\n", {"a", "b", "c"}, {"", "ab"}},
      {"root ::= (\"a\" |\n \"b\"\n)  \"c\"", {"ac", "bc"}, {"c", "a", "abc"}},
      {"root ::=\n  \"a\"\n", {"a"}, {""}},
      {"root ::= [a-cx]", {"a", "b", "c", "x"}, {"d", "", "-"}},
      {"root ::= [^a-c]", {"d", "\n", "é", "😀"}, {"a", "b", "ab", "\xC3"}},
      {"root ::= [a-]", {"a", "-"}, {"b"}},
      {"root ::= [-a]", {"a", "-"}, {"b"}},
      {"root ::= [\\]\\[\\^\\-\\\\\"]", {"]", "[", "^", "-", "\\", "\""}, {"a"}},
      {"root ::= [α-ω]+", {"αβγ"}, {"a", "Α", "\xCE"}},
      {"root ::= [\\x41-\\x43\\u00e9\\U0001F600]", {"A", "C", "é", "😀"}, {"D", "è"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\"", {"Aé😀\n\t\r\\\""}, {"Aé😀"}},
      {"root ::= . .", {"ab", "é😀"}, {"a", "abc", "\xFF\xFF"}},
      {"root ::= \"a\"*", {"", "a", "aaaa"}, {"b", "ab"}},
      {"root ::= \"a\"+", {"a", "aaaa"}, {"", "b"}},
      {"root ::= \"a\"?", {"", "a"}, {"aa"}},
      {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
      {"root ::= \"a\"{2,}", {"aa", "aaaaa"}, {"a", ""}},
      {"root ::= \"a\"{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"}},
      {"root ::= \"a\"{,2}", {"", "a", "aa"}, {"aaa"}},
      {"root ::= \"a\"{0}", {""}, {"a"}},
      {"root ::= \"a\"{ 1 , 2 }", {"a", "aa"}, {"", "aaa"}},
      {"root ::= (\"ab\" \"c\"?){2}", {"abab", "abcab", "abcabc"}, {"ab", "ababab"}},
      {"root ::= \"a\"?*", {"", "a", "aaa"}, {"b"}},
      {"root ::= first second-1\nfirst ::= \"x\"\nsecond-1 ::= \"y\" | third_2\nthird_2 ::= \"z\"",
       {"xy", "xz"},
       {"x"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", "())"}},
      {"# only\nroot ::= item (\",\" item)*\r\nitem ::= [0-9]+ # digits\n",
       {"1", "1,22,333"},
       {"1,", ",1", ""}},
  };
  for (const Example& example : examples) {
    for (const std::string_view text : example.matching) {
      EXPECT_TRUE(matches(example.grammar, text)) << example.grammar << "\nshould match: " << text;
    }
    for (const std::string_view text : example.other) {
      EXPECT_FALSE(matches(example.grammar, text)) << example.grammar << "\nshould not match: " << text;
    }
    // What is written as text again means the same.
    const auto rules = parse_gbnf(example.grammar);
    ASSERT_TRUE(rules.has_value());
    const std::string again = rules->to_gbnf().value();
    for (const std::string_view text : example.matching) EXPECT_TRUE(matches(again, text)) << again << text;
    for (const std::string_view text : example.other) EXPECT_FALSE(matches(again, text)) << again << text;
  }
}

TEST(Gbnf, NamesTokens) {
  const auto vocabulary = vocabulary_of({"a", "<tool_call>", "</s>", "b", "ab"});
  const auto grammar = compiled("root ::= <tool_call> \"a\" <[3]> <plain>", vocabulary);
  Matcher matcher(grammar);
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{1});
  ASSERT_TRUE(matcher.accept(1));
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{0});  // "ab" is not the token 3 behind "a"
  ASSERT_TRUE(matcher.accept(0));
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{3});
  ASSERT_TRUE(matcher.accept(3));
  EXPECT_EQ(matcher.forced_text(), "<plain>") << "no such token: its spelling";
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
  const std::vector<std::pair<std::string_view, std::string_view>> faults = {
      {"", "line 1, column 1: the grammar is empty"},
      {"# nothing\n", "line 1, column 1: the grammar is empty"},
      {"a ::= \"x\"", "line 1, column 1: there is no rule called root"},
      {"root ::= b\n", "line 1, column 10: rule \"b\" is not defined"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: rule \"root\" is defined twice"},
      {"root \"x\"", "line 1, column 6: expected ::= after \"root\""},
      {"::= \"x\"", "line 1, column 1: expected the name of a rule"},
      {"root ::= \"x", "line 1, column 10: this string is never closed"},
      {"root ::= \"x\n\"", "line 1, column 10: this string is never closed"},
      {"root ::= [a-c", "line 1, column 10: this character class is never closed"},
      {"root ::= [c-a]", "line 1, column 11: this range has its ends swapped"},
      {"root ::= (\"x\"", "line 1, column 10: this parenthesis is never closed"},
      {"root ::= (\"x\" }", "line 1, column 15: expected ) but found '}'"},
      {"root ::= \"x\")", "line 1, column 13: unexpected ')' in rule \"root\""},
      {"root ::= \"x\" a ::= \"y\"", "line 1, column 14: rule \"a\" must begin on a line of its own"},
      {"root ::= *", "line 1, column 10: unexpected '*' in rule \"root\""},
      {"root ::= \"x\"{2,1}", "line 1, column 13: {2,1} has its bounds swapped"},
      {"root ::= \"x\"{}", "line 1, column 13: expected {m}, {m,} or {m,n}"},
      {"root ::= \"x\"{,}", "line 1, column 13: {,} bounds nothing"},
      {"root ::= \"x\"{2", "line 1, column 15: expected } but found end of the grammar"},
      {"root ::= \"\\q\"", "line 1, column 11: unknown escape"},
      {"root ::= \"\\", "line 1, column 11: unknown escape"},
      {"root ::= \"\\x4\"", "line 1, column 11: this escape needs 2 hexadecimal digits"},
      {"root ::= \"\\ud800\"", "line 1, column 11: this is not a Unicode character"},
      {"root ::= \"\\U00110000\"", "line 1, column 11: this is not a Unicode character"},
      {"root ::= \"a\xFF\"", "line 1, column 12: this is not UTF-8"},
      {"root ::= \xFF", "line 1, column 10: unexpected byte that is not UTF-8"},
      {"root ::= <think", "line 1, column 10: this token is never closed"},
      {"root ::= <>", "line 1, column 10: <> names no token"},
      {"root ::= <[x]>", "line 1, column 10: expected <[id]>"},
      {"root ::= !<think>", "line 1, column 10: a token must not be negated here"},
      {"root ::= \"a\"\n\n  x", "line 3, column 4: expected ::= after \"x\""},
  };
  for (const auto& [text, message] : faults) {
    const auto rules = parse_gbnf(text);
    ASSERT_FALSE(rules.has_value()) << text;
    EXPECT_EQ(rules.error().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(rules.error().message().find(message), std::string::npos) << text << "\n"
                                                                        << rules.error().message();
  }
}

TEST(Gbnf, IsBounded) {
  const std::vector<std::string> texts = {
      std::string(kSourceBytesMax + 1, ' '),
      "root ::= \"x\"{1000001}",
      "root ::= \"x\"{99999999999999999999}",
      fmt::format("root ::= {}\"x\"{}", std::string(kNestingMax + 1, '('), std::string(kNestingMax + 1, ')')),
      fmt::format("root ::= \"x\"{}", std::string(3000, '?')),
      [] {
        std::string many = "root ::= r0\n";
        for (uint32_t i = 0; i < kRulesMax + 1; ++i) many += fmt::format("r{} ::= \"x\"\n", i);
        return many;
      }(),
  };
  for (const std::string& text : texts) {
    const auto rules = parse_gbnf(text);
    ASSERT_FALSE(rules.has_value()) << text.substr(0, 100);
    EXPECT_EQ(rules.error().code(), Code::kResourceExhausted) << rules.error().message();
  }
}

// Cuts, doubles and swaps pieces of a grammar: whatever comes out is read or refused, never more.
TEST(Gbnf, SurvivesDamagedText) {
  const std::string text =
      "root ::= object | [^\"\\\\\\x7F]{2,3} # c\nobject ::= \"{\" (root (\",\" root)*)? \"}\" | <tool_call> "
      ". <[5]>\n";
  uint32_t random = 1;
  const auto next = [&](std::size_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = text;
    for (std::size_t cuts = 1 + next(4); cuts-- > 0;) {
      const std::size_t at = next(damaged.size());
      switch (next(3)) {
        case 0:
          damaged.erase(at, 1 + next(5));
          break;
        case 1:
          damaged.insert(at, text.substr(next(text.size()), 1 + next(8)));
          break;
        default:
          damaged[at] = static_cast<char>(next(256));
      }
      if (damaged.empty()) damaged.push_back('r');
    }
    const auto grammar = Grammar::from_gbnf(damaged, byte_vocabulary());
    if (grammar) {
      ++read;
      Matcher matcher(*grammar);
      EXPECT_TRUE(matcher.is_complete() || !allowed(matcher).empty()) << damaged;
    } else {
      EXPECT_FALSE(grammar.error().message().empty());
    }
  }
  EXPECT_GT(read, 100) << "the damage is too heavy to test anything";
}

TEST(Gbnf, WhatIsLongAndStandsInSeveralPlacesIsWrittenOnce) {
  Rules rules;
  // Written out it would have 2^40 characters.
  NodeId body = rules.bytes("a");
  for (int level = 0; level < 40; ++level) {
    body = rules.sequence(
        {rules.bytes("("), body, rules.optional(rules.sequence({rules.bytes(","), body})), rules.bytes(")")});
  }
  rules.set_root(rules.define_new("shared-1", body));  // a name that the writer has to leave alone
  const std::string text = rules.to_gbnf().value();
  EXPECT_LT(text.size(), 100'000U);
  const auto again = parse_gbnf(text);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->to_gbnf().value().size(), text.size());
}

TEST(Gbnf, ATextThatNobodyCouldReadBackIsAnError) {
  Rules rules;
  rules.set_root(rules.define_new("root", rules.bytes(std::string(kSourceBytesMax + 1, 'a'))));
  const auto text = rules.to_gbnf();
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kResourceExhausted);
}

TEST(Gbnf, RulesOfAnotherGrammarKeepTheirMeaningBesideOnesOfTheSameNames) {
  const auto digits = parse_gbnf("root ::= item (\",\" item)*\nitem ::= [0-9]+");
  const auto letters = parse_gbnf("root ::= item | \"(\" root \")\"\nitem ::= [a-z]{2}");
  ASSERT_TRUE(digits && letters);
  Rules both;
  const RuleId root = both.add_rule("root");
  const NodeId first = both.add_rules_of(*digits), second = both.add_rules_of(*letters);
  both.define(root, both.choice({first, second}));
  both.set_root(root);
  const auto grammar = compiled(both.to_gbnf().value());
  for (const char* text : {"1", "12,3", "ab", "((ab))"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"", "a", "1,ab", "(1)", "(ab", "abc"})
    EXPECT_FALSE(matches(grammar, text)) << text;
}

}  // namespace
}  // namespace strata::grammar
