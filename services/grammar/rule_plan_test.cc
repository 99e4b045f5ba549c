// Which grammars are refused, and that hostile ones cost bounded time and memory.
#include "services/grammar/rule_plan.h"

#include <gtest/gtest.h>

#include "services/grammar/gbnf.h"
#include "services/grammar/limits.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

Status compile_status(std::string_view text) {
  auto grammar = Grammar::from_gbnf(text, byte_vocabulary());
  return grammar ? Status() : grammar.error();
}

TEST(RulePlan, RefusesLeftRecursionAndNamesTheRules) {
  const std::vector<std::pair<std::string_view, std::string_view>> faults = {
      {"root ::= root \"a\" | \"a\"", "left recursion root -> root"},
      {"root ::= a\na ::= b \"x\"\nb ::= c\nc ::= a | \"y\"", "left recursion a -> b -> c -> a"},
      {"root ::= empty root \"a\" | \"a\"\nempty ::= \"b\"*", "left recursion root -> root"},
      {"root ::= (root)* \"a\"", "left recursion root -> root"},
      {"root ::= \"\" root", "no text can match"},
      {"root ::= x{5} \"a\"\nx ::= \"b\"? y\ny ::= x \"c\" | \"d\"", "left recursion"},
  };
  for (const auto& [text, message] : faults) {
    const Status status = compile_status(text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(message), std::string::npos) << text << "\n" << status.message();
  }
  EXPECT_TRUE(compile_status("root ::= \"a\"\nunused ::= unused \"x\"").ok())
      << "what is not reached does no harm";
}

TEST(RulePlan, RefusesWhatNothingMatches) {
  for (const std::string_view text :
       {"root ::= \"a\" root", "root ::= []", "root ::= a\na ::= \"x\" b\nb ::= \"y\" a"}) {
    EXPECT_NE(compile_status(text).message().find("no text can match rule \"root\""), std::string::npos)
        << text;
  }
  // A branch that cannot end is never entered.
  const auto grammar = compiled("root ::= \"a\" endless | \"b\" | [] \"c\"\nendless ::= \"x\" endless");
  Matcher matcher(grammar);
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{'b'});
}

TEST(RulePlan, RightRecursionBecomesALoop) {
  const auto grammar =
      compiled("root ::= \"a\" tail\ntail ::= \",\" root | more | \"\"\nmore ::= \";\" tail");
  EXPECT_EQ(grammar->automaton().rule_count(), 1U);
  EXPECT_TRUE(matches(grammar, "a,a;;,a"));
  EXPECT_FALSE(matches(grammar, "a,;"));
  EXPECT_FALSE(matches(grammar, "a,a,"));
}

TEST(RulePlan, ARuleThatIsCalledFromManyPlacesStandsAlone) {
  const auto grammar = compiled(
      "root ::= \"1\" text \",\" text | \"2\" text\ntext ::= \"'\" letters \"'\"\nletters ::= [a-z] [a-z] "
      "[a-z] [a-z] "
      "[a-z] [a-z] [a-z] [a-z] [a-z] [a-z] [a-z] [a-z] [a-z]");
  EXPECT_EQ(grammar->automaton().rule_count(), 3U);
  EXPECT_TRUE(matches(grammar, "1'abcdefghijklm','abcdefghijklm'"));
  EXPECT_TRUE(matches(grammar, "2'abcdefghijklm'"));
  EXPECT_FALSE(matches(grammar, "2'abcdefghijklm','abcdefghijklm'"));
}

TEST(RulePlan, LargeRepetitionsCountInsteadOfBeingWrittenOut) {
  const auto grammar = compiled("root ::= \"<\" [a-z]{3,100000} \">\"");
  EXPECT_LT(grammar->automaton().state_count(), 20U);
  EXPECT_FALSE(matches(grammar, "<ab>"));
  EXPECT_TRUE(matches(grammar, "<abc>"));
  EXPECT_TRUE(matches(grammar, fmt::format("<{}>", std::string(100'000, 'x'))));
  EXPECT_EQ(match(grammar, fmt::format("<{}", std::string(100'000, 'x'))), Match::kPrefix);
  EXPECT_EQ(match(grammar, fmt::format("<{}", std::string(100'001, 'x'))), Match::kNo);
  EXPECT_TRUE(matches("root ::= [a-z]{200,}", std::string(1000, 'a')));
  EXPECT_TRUE(matches("root ::= [a-z]{200,}", std::string(200, 'a')));
  EXPECT_EQ(match(compiled("root ::= [a-z]{200,}"), std::string(199, 'a')), Match::kPrefix);
  // Of something that may be empty: fewer will do.
  EXPECT_TRUE(matches("root ::= (\"a\"? \"b\"?){500} \"c\"", "abbac"));
  EXPECT_EQ(match(compiled("root ::= (\"a\"{2}){200,300}"), std::string(601, 'a')), Match::kNo);
  EXPECT_EQ(match(compiled("root ::= (\"a\"{2}){200,300}"), std::string(501, 'a')), Match::kPrefix);
}

TEST(RulePlan, ARuleThatIsRepeatedOftenIsCopiedIntoTheRepetition) {
  const auto grammar =
      compiled("root ::= \"<\" c{2,40} \">\"\nc ::= [^<>\\\\] | \"\\\\\" ([<>n] | \"u\" [0-9a-f]{4})");
  EXPECT_EQ(grammar->automaton().rule_count(), 2U);
  EXPECT_LT(grammar->automaton().state_count(), 30U);
  EXPECT_FALSE(matches(grammar, "<a>"));
  EXPECT_TRUE(matches(grammar, "<a\\u00e9>"));
  EXPECT_TRUE(matches(grammar, fmt::format("<{}>", std::string(40, 'x'))));
  EXPECT_EQ(match(grammar, fmt::format("<{}", std::string(41, 'x'))), Match::kNo);
}

TEST(RulePlan, TokenIdsAreChecked) {
  const Status status = compile_status("root ::= <[257]>");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("there is no token 257, the vocabulary has 257"), std::string::npos);
}

// Grammars made to explode. Each must be refused or work, within the memory and time of an ordinary test.
TEST(RulePlan, SurvivesHostileGrammars) {
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 60; ++i) doubling += fmt::format("r{} ::= r{} r{}\n", i, i + 1, i + 1);
  doubling += "r60 ::= \"x\" | \"\"\n";
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 4000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  chain += "r4000 ::= \"x\"\n";
  std::string wide = "root ::= ";
  for (int i = 0; i < 4000; ++i) wide += fmt::format("r{} ", i);
  wide += "\n";
  for (int i = 0; i < 4000; ++i) wide += fmt::format("r{} ::= r{}?\n", i, i + 1);
  wide += "r4000 ::= \"x\"?\n";
  const std::vector<std::string> texts = {
      doubling,
      chain,
      wide,
      "root ::= [ab]* \"a\" [ab]{90}",  // 2^90 deterministic states
      "root ::= ([ab]* \"a\" [ab]{20} | [ab]* \"b\" [ab]{21}){3}",
      "root ::= (((((\"a\"{90}){90}){90}){90}){90}){90}",
      "root ::= (((((\"a\"?){90}){90}){90}){90}){90}",
      "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\"",  // every reading of a^n
      "root ::= s s s s\ns ::= \"a\" s \"b\"? s | \"\"",
      "root ::= ((\"a\" | \"aa\" | \"aaa\"){1,1000000} \"b\"?){1,1000000}",
  };
  for (const std::string& text : texts) {
    auto grammar = Grammar::from_gbnf(text, byte_vocabulary());
    if (!grammar) {
      EXPECT_EQ(grammar.error().code(), Code::kResourceExhausted) << grammar.error().message();
      continue;
    }
    Matcher matcher(*grammar);
    for (int i = 0; i < 60; ++i) {
      const std::set<int32_t> tokens = allowed(matcher);
      if (tokens.empty()) break;
      if (!matcher.accept(*tokens.begin())) break;
    }
  }
}

}  // namespace
}  // namespace strata::grammar
