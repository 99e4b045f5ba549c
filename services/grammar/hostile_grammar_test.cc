// Grammars that somebody wrote to keep a server busy: each is refused with a reason, or what it costs stays
// within the limits. A test that hangs here has found one that does not.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "services/grammar/limits.h"
#include "services/grammar/matcher.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

// Bytes and words, so that nearly every state inside of letters fits hundreds of tokens.
std::shared_ptr<const Vocabulary> words() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back("</s>");
  for (char a = 'a'; a <= 'z'; ++a) {
    texts.push_back(std::string(12, a));
    for (char b = 'a'; b <= 'z'; ++b) texts.push_back({a, b});
  }
  return vocabulary_of(texts);
}

std::string repeated(int count, const std::function<std::string(int)>& part) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part(i);
  return out;
}

TEST(HostileGrammars, AreRefusedWithAReason) {
  const auto vocabulary = words();
  struct Refused {
    std::string text, why;
  };
  for (const Refused& each : {
           Refused{"root ::= a\na ::= b \"x\"\nb ::= a | \"y\"", "left recursion a -> b -> a"},
           Refused{"root ::= e root \"x\" | \"y\"\ne ::= \"z\"?", "left recursion root -> root"},
           Refused{"root ::= (\"a\"? root)*", "left recursion"},
           Refused{"root ::= \"a\" root", "root"},  // no text ever ends
           Refused{"root ::= \"a\"{0,1000001}", "more than 1000000 repetitions"},
           Refused{"root ::= \"a\"{5,2}", "5"},
           Refused{"root ::= " + repeated(3000, [](int) { return "[a-z]? "; }), "more than"},
           Refused{"root ::= " + std::string(3000, '(') + "\"a\"" + std::string(3000, ')'), "parentheses"},
           Refused{
               "root ::= \"a\"\n" + repeated(9000, [](int i) { return fmt::format("r{} ::= \"a\"\n", i); }),
               "rules"},
           Refused{"root ::= \"" + std::string(kSourceBytesMax, 'a') + "\"", "bytes"},
       }) {
    const auto made = Grammar::from_gbnf(each.text, vocabulary);
    ASSERT_FALSE(made.has_value()) << each.text.substr(0, 60);
    EXPECT_NE(made.error().message().find(each.why), std::string::npos)
        << each.text.substr(0, 60) << ": " << made.error().message();
  }
}

TEST(HostileGrammars, OrCostNoMoreThanTheirLimits) {
  const auto vocabulary = words();
  const std::vector<std::string> texts = {
      "root ::= \"a\"{0,100000}",
      "root ::= (\"a\" | \"aa\" | \"aaa\"){0,100000}",
      "root ::= (((\"a\"?){0,1000}){0,1000}){0,1000}",
      "root ::= ((([a-z]*)*)*)*",
      "root ::= (\"a\"? \"b\"? [c-z]?){0,100000}",
      "root ::= s\ns ::= [a-z] s s s | [a-z] s s | [a-z] s | [a-z]?",
      // 2^60 texts, of one rule each.
      "root ::= r0\n" + repeated(60, [](int i) { return fmt::format("r{0} ::= r{1} r{1}\n", i, i + 1); }) +
          "r60 ::= \"a\"\n",
      // A deterministic automaton of it would have 2^40 states.
      "root ::= [a-z]* \"x\" " + repeated(40, [](int) { return "[a-z] "; }) + "\"!\"",
      "root ::= ([a-z]* \"x\" [a-z]{40} \"!\" | [a-z]* \"y\" [a-z]{37} \"?\")*",
      // As many readings as there are rules.
      "root ::= (" + repeated(60, [](int i) { return fmt::format("{}r{}", i == 0 ? "" : " | ", i); }) +
          ")*\n" +
          repeated(60,
                   [](int i) {
                     return fmt::format("r{0} ::= [a-z]+ \"{0}\" | [a-z] r{1}\n", i, (i * 7 + 1) % 60);
                   }),
      "root ::= (" +
          repeated(60,
                   [](int i) {
                     return fmt::format("{}[a-z]{{{},{}}} \"{}\"", i == 0 ? "" : " | ", i, 3 * i + 5, i);
                   }) +
          ")*",
      "root ::= " + repeated(190, [](int) { return "("; }) + "[a-z]" +
          repeated(190, [](int) { return "{0,1000})"; }),
      "root ::= " +
          repeated(2000,
                   [](int i) { return fmt::format("[^{0}]* \"{0}\" ", static_cast<char>('a' + i % 26)); }),
  };
  for (const std::string& text : texts) {
    const auto grammar = Grammar::from_gbnf(text, vocabulary);
    ASSERT_TRUE(grammar.has_value()) << text.substr(0, 60) << ": " << grammar.error().message();
    std::mt19937 random(1);
    Matcher matcher(*grammar);
    std::vector<uint32_t> mask(vocabulary->mask_words());
    for (int step = 0; step < 12; ++step) {
      matcher.set_effort(Matcher::Effort::kQuick);
      matcher.fill_mask(mask);  // whatever it says, it comes back
      matcher.set_effort(Matcher::Effort::kPatient);
      if (!matcher.fill_mask(mask)) {
        EXPECT_TRUE(matcher.gave_up()) << text.substr(0, 60);
        break;
      }
      std::vector<int32_t> tokens;
      for (uint32_t t = 0; t < vocabulary->size(); ++t)
        if ((mask[t / 32] >> t % 32 & 1U) != 0) tokens.push_back(static_cast<int32_t>(t));
      // Only where there are too many readings is there nothing.
      if (tokens.empty() || !matcher.accept(tokens[random() % tokens.size()])) break;
      if (matcher.is_ended()) break;
    }
    EXPECT_LT((*grammar)->memory_bytes(), 2 * kMaskBytesMax) << text.substr(0, 60);
  }
}

}  // namespace
}  // namespace strata::grammar
