// Against std::regex, which reads the same language.
#include "services/grammar/regex.h"

#include <gtest/gtest.h>

#include <regex>

#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

std::shared_ptr<const Grammar> grammar_of(std::string_view pattern) {
  const auto regex = parse_regex(pattern);
  EXPECT_TRUE(regex.has_value()) << pattern << ": " << regex.error().message();
  if (!regex) return nullptr;
  Rules rules;
  const RuleId root = rules.add_rule("root");
  rules.define(root, add_regex(rules, *regex, [&](const CodePoints& set) { return rules.chars(set); }));
  rules.set_root(root);
  return compiled(rules);
}

TEST(Regex, MatchesWhatStdRegexFinds) {
  const char* patterns[] = {"abc",
                            "^abc$",
                            "^abc",
                            "abc$",
                            "^$",
                            "",
                            "a|b",
                            "^a|b$",
                            "^(a|b)$",
                            "^(?:ab)+$",
                            "^(?<name>ab)+$",
                            "^a*b?c+$",
                            "^a{2}$",
                            "^a{2,}$",
                            "^a{1,3}$",
                            "^a+?b*?$",
                            "^[abc]$",
                            "^[^abc]$",
                            "^[a-c]+$",
                            "^[a-]$",
                            "^[-a]$",
                            "^[\\]a]$",
                            "^\\d+$",
                            "^\\D+$",
                            "^\\w+$",
                            "^\\W$",
                            "^\\s$",
                            "^\\S+$",
                            "^[\\d-]+$",
                            "^\\.$",
                            "^a\\.b$",
                            "^.$",
                            "^a.c$",
                            "^\\x41$",
                            "^\\u0042$",
                            "^\\t\\n$",
                            "^(a(b(c)?)?)?$",
                            "^(?:a|)(?:b|)$",
                            "^[+-]?\\d+(\\.\\d+)?$",
                            "^(ab|a)(c|bc)$",
                            "^\\/\\-$",

                            "(^a|b$)"};
  const char* texts[] = {"",     "a",   "b",    "c",    "abc",  "xabc", "abcx", "ab", "abab", "aa",   "aaa",
                         "aaaa", "ac",  "abbc", "aabc", "-",    "]",    "1",    "12", "-12",  "+1.5", "1.",
                         "a.b",  "axb", ".",    " ",    "\t",   "\n",   "\t\n", "A",  "B",    "_9",   "a c",
                         "a\nc", "bb",  "cc",   "/-",   "abcc", "bc",   "acbc", "x",  "xb",   "ax"};
  for (const char* pattern : patterns) {
    const auto grammar = grammar_of(pattern);
    ASSERT_NE(grammar, nullptr);
    // std::regex does not know named groups.
    const std::regex expected(std::regex_replace(std::string(pattern), std::regex("\\?<name>"), "?:"));
    for (const char* text : texts) {
      ASSERT_EQ(matches(grammar, text), std::regex_search(text, expected))
          << "pattern " << pattern << " text " << text;
    }
  }
}

TEST(Regex, KnowsCharactersBeyondAscii) {
  EXPECT_TRUE(matches(grammar_of("^é{2}$"), "éé"));
  EXPECT_TRUE(matches(grammar_of("^[α-ω]+$"), "αβγ"));
  EXPECT_FALSE(matches(grammar_of("^[^α-ω]$"), "β"));
  EXPECT_TRUE(matches(grammar_of("^\\u{1F600}.$"), "😀😀"));
  EXPECT_FALSE(matches(grammar_of("^\\w$"), "é"));
  EXPECT_TRUE(matches(grammar_of("^\\s\\S$"), "\u00A0é"));
  EXPECT_FALSE(matches(grammar_of("^.$"), "\u2028"));
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> faults[] = {
      {"a(?=b)", "at 3: look-around"},
      {"(?<!a)b", "at 2: look-around"},
      {"(?i)a", "at 2: look-around and flags"},
      {"(a)\\1", "at 5: back-references"},
      {"\\bword", "\\b is not supported"},
      {"\\p{L}", "\\p is not supported"},
      {"*a", "at 1: nothing to repeat"},
      {"a**", "nothing to repeat"},
      {"a{2}{3}", "nothing to repeat"},
      {"a{2,1}", "bounds are swapped"},
      {"a{x}", "expected {m}"},
      {"(a", "this group is never closed"},
      {"a)", "this ) closes nothing"},
      {"[a", "this character class is never closed"},
      {"[c-a]", "ends of the range"},
      {"[\\d-z]", "a range needs a character at each end"},
      {"a\\", "ends in a backslash"},
      {"\\x4", "hexadecimal digits are missing"},
      {"\\u{110000}", "not a Unicode"},
      {"\\uD800", "not a Unicode"},
      {"a^b", "^ and $ are supported"},
      {"(a$)b", "^ and $ are supported"},
      {"^*", "an anchor cannot be repeated"},
      {"\xFF", "not UTF-8"},
      {"(?<n", "never closed"},
  };
  for (const auto& [pattern, message] : faults) {
    const auto regex = parse_regex(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code(), Code::kInvalidArgument);
    EXPECT_NE(regex.error().message().find(message), std::string::npos)
        << pattern << ": " << regex.error().message();
  }
  EXPECT_EQ(parse_regex("a{1000001}").error().code(), Code::kResourceExhausted);
  EXPECT_EQ(parse_regex(std::string(500, '(')).error().code(), Code::kResourceExhausted);
}

TEST(Regex, SaysHowLongItsTextsAre) {
  const auto length = [](std::string_view pattern) {
    const RegexLength found = length_of(*parse_regex(pattern));
    return std::pair(found.min, found.max);
  };
  EXPECT_EQ(length("^a{2,5}(bc|d)$"), (std::pair<uint64_t, uint64_t>{3, 7}));
  EXPECT_EQ(length("^a*$"), (std::pair<uint64_t, uint64_t>{0, kUnbounded}));
  EXPECT_EQ(length("a"), (std::pair<uint64_t, uint64_t>{1, kUnbounded}));
  EXPECT_EQ(length("^(a{1000000}){1000000}$").second, kUnbounded);
}

}  // namespace
}  // namespace strata::grammar
