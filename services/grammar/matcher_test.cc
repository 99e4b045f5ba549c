#include "services/grammar/matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "services/grammar/gbnf.h"
#include "services/grammar/limits.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

constexpr std::string_view kJson = R"(
root ::= record
record ::= "{" gap (member ("," gap member)*)? "}" gap
member ::= text ":" gap any
any ::= number | text | record | list | ("true" | "false" | "null")
list ::= "[" gap (any ("," gap any)*)? "]" gap
text ::= "\"" (plain | escaped)* "\"" gap
plain ::= [^"\\\x00-\x1F]
escaped ::= "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? gap
gap ::= [ \n\t]*
)";

// Tokens as BPE makes them for JSON: quotes glued to what follows, halves of characters, runs of brackets.
std::shared_ptr<const Vocabulary> json_vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"</s>",     "<tool_call>", "{\"",      "\":",          "\":\"",  "\",\"",  "\"}",   "\"},",
        "\"}]",     "}}",          "}}}",      "]]",           "[[",     "[{\"",   "\": ",  "\": \"",
        "\", \"",   "name",        "Paris",    " the",         "true",   "false",  "null",  "nul",
        "12",       "0.5",         "-1",       "1e",           "\\\"",   "\\u",    "\\n",   "00",
        "\xC3\xA9", "\xE2\x82",    "\x82\xAC", "\xF0\x9F\x98", "\x80\"", "é\"",    "  ",    "\n  ",
        "}\n",      ",\n",         "a\"b",     "a\":1",        "\\",     "\\\\\"", "u00e9", "],[",
        "]}",       "}]",          "e+5",      ".5",           "1,2",    "1]",     "\"a\""}) {
    texts.emplace_back(text);
  }
  return vocabulary_of(texts);
}

// A walk over allowed tokens; at every step the mask must be what trying each token gives.
void walk_and_compare(const std::shared_ptr<const Grammar>& grammar, uint32_t seed, int steps) {
  std::mt19937 random(seed);
  Matcher matcher(grammar);
  std::string text;
  for (int i = 0; i < steps; ++i) {
    const std::set<int32_t> tokens = allowed(matcher);
    ASSERT_EQ(tokens, accepted_one_by_one(matcher)) << "seed " << seed << " after: " << text;
    ASSERT_FALSE(tokens.empty()) << "seed " << seed << " stuck after: " << text;
    auto chosen = tokens.begin();
    std::advance(chosen, random() % tokens.size());
    ASSERT_TRUE(matcher.accept(*chosen));
    text += grammar->vocabulary().bytes(*chosen);
    if (matcher.is_ended()) return;
  }
}

TEST(Matcher, MasksEqualTryingEachToken) {
  const auto vocabulary = json_vocabulary();
  const std::vector<std::string_view> grammars = {
      kJson,
      "root ::= [a-z\"]{3,40} \"\\\":\" [0-9]{2,}",  // counted, and it may end in what it may go on with
      "root ::= ([^\"]{0,30} \"\\\"\"){1,50}",       // counted inside counted
      "root ::= (\"a\" | \"aa\" | \"name\")* \"}\"{1,200} \"]\"*",
      "root ::= \"[\" root \"]\" | \"{\" root \"}\" | \"1\"",
      "root ::= s s\ns ::= \"[\" s \"]\" s | \"\"",
      "root ::= [^<]* (<tool_call> [^<]* \"}\")*",
      "root ::= .{5,60}",
  };
  for (const std::string_view text : grammars) {
    const auto grammar = compiled(text, vocabulary);
    for (uint32_t seed = 0; seed < 30; ++seed) walk_and_compare(grammar, seed, 40);
  }
}

// The same where a state has too many cases to keep (limits in local_paths.cc): ambiguous to the last byte.
TEST(Matcher, SearchesTheVocabularyWhereAMaskWouldBeTooLarge) {
  std::string text = "root ::= s\ns ::= ";
  for (int i = 0; i < 30; ++i) text += fmt::format("{} [a-z] a{} \"{}\"", i == 0 ? "" : " |", i, i);
  text += " | \"x\"\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("a{} ::= s | \"y{}\"\n", i, i);
  std::vector<std::string> tokens = {"</s>", "a",  "ab", "abcd", "abcdefgh", "x",
                                     "x0",   "xx", "1",  "12",   "abx0",     "29"};
  const auto grammar = compiled(text, vocabulary_of(tokens));
  bool searched = false;
  for (StateId state = 0; state < grammar->automaton().state_count(); ++state) {
    searched = searched || grammar->mask(MaskPlace::of(state))->form == StateMask::Form::kSearch;
  }
  EXPECT_TRUE(searched);
  for (uint32_t seed = 0; seed < 20; ++seed) walk_and_compare(grammar, seed, 12);
}

// Enough words that nearly every state in a text has more of them than may be tried (kRestsTriedMax).
std::shared_ptr<const Vocabulary> vocabulary_of_words() {
  std::vector<std::string> texts;
  for (const char* text :
       {"</s>", " ", "\"", "\", \"", "\"]", "[\"",        "\\",   "\\n",  "\\u", "00", "0",   "]",  "[",
        ",",    ";", "<",  "-",      "a\"", "ab\", \"cd", "\xC3", "\xA9", "é",   "!",  "a!b", "ab-"})
    texts.emplace_back(text);
  for (char a = 'a'; a <= 'z'; ++a) {
    texts.emplace_back(1, a);
    for (char b = 'a'; b <= 'z'; ++b) {
      for (char c = 'a'; c <= 'e'; ++c) texts.push_back({a, b, c});
    }
  }
  return vocabulary_of(texts);
}

uint32_t masks_by_callers(const Grammar& grammar) {
  uint32_t count = 0;
  for (StateId state = 0; state < grammar.automaton().state_count(); ++state)
    count += grammar.mask(MaskPlace::of(state))->by_caller ? 1 : 0;
  return count;
}

// One character, which its callers repeat: too large to be copied to where it is called, and nearly every
// token leaves it.
constexpr std::string_view kCharacter =
    "\nc ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n";

TEST(Matcher, MasksByCallersEqualTryingEachToken) {
  const auto vocabulary = vocabulary_of_words();
  for (const std::string_view text : {
           "root ::= \"[\" s (\", \" s)* \"]\"\ns ::= \"\\\"\" c* \"\\\"\"",
           "root ::= \"[\" s (\", \" s){0,999} \"]\"\ns ::= \"\\\"\" c{2,3} \"\\\"\"",
           "root ::= (\"[\" w{3,500} \"]\" | \"<\" w \"!\" w){2,200}\nw ::= c c | c \"-\" c",  // two callers
                                                                                               // deep
           "root ::= x x\nx ::= y | \";\" y y\ny ::= z \"!\" | z z\nz ::= w w | w\nw ::= v v \"-\" | v\nv "
           "::= c | c c",
           "root ::= \"[\" root \"]\" root | c \";\" | c c",
           "root ::= c (\"-\" root)? | c root",
       }) {
    const auto grammar = compiled(std::string(text) + std::string(kCharacter), vocabulary);
    EXPECT_GT(masks_by_callers(*grammar), 0U) << text;
    for (uint32_t seed = 0; seed < 3; ++seed) walk_and_compare(grammar, seed, 12);
  }
}

TEST(Matcher, MasksByCallersArePrepared) {
  const auto grammar =
      compiled("root ::= \"[\" s (\", \" s)* \"]\"\ns ::= \"\\\"\" c* \"\\\"\"" + std::string(kCharacter),
               vocabulary_of_words());
  EXPECT_GT(grammar->prepare(std::chrono::nanoseconds(0)), 0U);
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  const std::size_t prepared = grammar->memory_bytes();
  for (uint32_t seed = 0; seed < 3; ++seed) walk_and_compare(grammar, seed, 12);
  EXPECT_EQ(grammar->memory_bytes(), prepared);
}

TEST(Matcher, SearchesTheVocabularyWhereCallersAreTooManyOrTheirMasksMayTakeNoMemory) {
  const auto vocabulary = vocabulary_of_words();
  std::string text = "root ::= (";
  for (uint32_t i = 0; i <= kCallerMasksPerStep; ++i) text += fmt::format("{}r{}", i == 0 ? "" : " | ", i);
  text += ")*\n";
  for (uint32_t i = 0; i <= kCallerMasksPerStep; ++i)
    text += fmt::format("r{} ::= \"<\" c c \"{};\"\n", i, i);
  const auto many = compiled(text + std::string(kCharacter), vocabulary);
  EXPECT_GT(masks_by_callers(*many), 0U);
  walk_and_compare(many, 1, 4);

  const auto rules = parse_gbnf("root ::= \"[\" c* \"]\"" + std::string(kCharacter));
  ASSERT_TRUE(rules.has_value());
  const auto without = Grammar::compile(*rules, vocabulary, {.caller_bytes = 0});
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ((*without)->prepare(std::chrono::hours(1)), 0U) << "nothing more can be made";
  walk_and_compare(*without, 1, 8);
}

TEST(Matcher, CharactersMayBeSplitBetweenTokens) {
  const auto vocabulary = json_vocabulary();
  Matcher matcher(compiled("root ::= \"\\\"\" [€é] \"\\\"\"", vocabulary));
  ASSERT_TRUE(matcher.accept('"'));
  std::set<int32_t> tokens = allowed(matcher);
  const auto id = [&](std::string_view bytes) {
    for (uint32_t t = 0; t < vocabulary->size(); ++t) {
      if (vocabulary->bytes(static_cast<int32_t>(t)) == bytes) return static_cast<int32_t>(t);
    }
    return -1;
  };
  EXPECT_EQ(tokens, (std::set<int32_t>{0xC3, 0xE2, id("\xC3\xA9"), id("\xE2\x82"), id("é\"")}));
  ASSERT_TRUE(matcher.accept(id("\xE2\x82")));
  EXPECT_EQ(allowed(matcher), (std::set<int32_t>{0xAC}));
  EXPECT_FALSE(matcher.accept(0x80));
  ASSERT_TRUE(matcher.accept(0xAC));
  EXPECT_EQ(matcher.forced_text(), "\"");
}

TEST(Matcher, RollbackGoesBackToExactlyWhatWas) {
  const auto grammar = compiled(kJson, json_vocabulary());
  std::mt19937 random(7);
  Matcher matcher(grammar, 16);
  std::vector<std::set<int32_t>> masks = {allowed(matcher)};
  for (int round = 0; round < 300; ++round) {
    // A few drafts, then some of them are refused.
    std::size_t drafts = 0;
    for (; drafts < 8; ++drafts) {
      std::set<int32_t> tokens = masks.back();
      // An object that nests goes on for long; ending is tested elsewhere.
      for (const char c : {'}', ']'}) tokens.erase(c);
      std::erase_if(tokens, [&](int32_t t) { return grammar->vocabulary().is_end_of_generation(t); });
      if (tokens.empty()) break;
      auto chosen = tokens.begin();
      std::advance(chosen, random() % tokens.size());
      ASSERT_TRUE(matcher.accept(*chosen));
      masks.push_back(allowed(matcher));
    }
    const auto refused = static_cast<uint32_t>(drafts == 0 ? 1 : random() % (drafts + 1));
    if (matcher.rollback_available() < refused || masks.size() <= refused) break;
    matcher.rollback(refused);
    masks.resize(masks.size() - refused);
    ASSERT_EQ(allowed(matcher), masks.back()) << "round " << round;
  }
  EXPECT_GT(masks.size(), 20U);
  EXPECT_LE(matcher.rollback_available(), 33U);
}

TEST(Matcher, LongNestedTextsKeepTheirMemoryAndTheirPlace) {
  const auto grammar =
      compiled("root ::= \"[\" root \"]\" | item \",\" root | \"\"\nitem ::= \"(\" item? \")\"");
  Matcher matcher(grammar, 4);
  const int depth = 3000;
  for (int i = 0; i < depth; ++i) {
    ASSERT_TRUE(matcher.accept('['));
    for (const char c : {'(', '(', ')', ')', ','}) ASSERT_TRUE(matcher.accept(c));
  }
  for (int i = 0; i < depth; ++i) {
    EXPECT_FALSE(matcher.is_complete());
    ASSERT_TRUE(matcher.accept(']')) << i;
  }
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.accept(']'));
}

TEST(Matcher, CopiesAreIndependent) {
  Matcher a(compiled("root ::= \"[\" root \"]\" | \"x\""));
  ASSERT_TRUE(a.accept('['));
  Matcher b = a;
  ASSERT_TRUE(b.accept('['));
  ASSERT_TRUE(b.accept('x'));
  ASSERT_TRUE(a.accept('x'));
  ASSERT_TRUE(a.accept(']'));
  EXPECT_TRUE(a.is_complete());
  ASSERT_TRUE(b.accept(']'));
  EXPECT_FALSE(b.is_complete());
  b.rollback(2);
  EXPECT_EQ(allowed(b), (std::set<int32_t>{'[', 'x'}));
}

TEST(Matcher, EndsOnlyWhereTheTextIsComplete) {
  const auto grammar = compiled("root ::= \"ab\" \"c\"?");
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept(256));
  ASSERT_TRUE(matcher.accept('a'));
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{'b'});
  ASSERT_TRUE(matcher.accept('b'));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.only_end_allowed());
  EXPECT_EQ(allowed(matcher), (std::set<int32_t>{'c', 256}));
  ASSERT_TRUE(matcher.accept('c'));
  EXPECT_TRUE(matcher.only_end_allowed());
  ASSERT_TRUE(matcher.accept(256));
  EXPECT_TRUE(matcher.is_ended());
  EXPECT_TRUE(allowed(matcher).empty());
  EXPECT_FALSE(matcher.accept('c'));
  EXPECT_FALSE(matcher.accept(256));
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_ended());
  EXPECT_EQ(allowed(matcher), (std::set<int32_t>{'c', 256}));
}

TEST(Matcher, ATextMayNotEndInsideAToken) {
  Matcher matcher(compiled("root ::= \"a\"", vocabulary_of({"a", "ab", "</s>"})));
  EXPECT_FALSE(matcher.accept(1));
  EXPECT_EQ(allowed(matcher), std::set<int32_t>{0});
}

TEST(Matcher, SpecialAndUnknownTokensAreNeverText) {
  const auto vocabulary = vocabulary_of({"<", "tool", "_call>", "<tool_call>", "</s>"});
  Matcher matcher(compiled("root ::= .*", vocabulary));
  EXPECT_EQ(allowed(matcher), (std::set<int32_t>{0, 1, 2, 4}));
  EXPECT_FALSE(matcher.accept(3));
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(5));
}

TEST(Matcher, ForcedTextIsAllThatCannotBeOtherwise) {
  Matcher matcher(compiled("root ::= \"{\\\"name\\\": \\\"\" [a-z]+ \"\\\"}\""));
  EXPECT_EQ(matcher.forced_text(), "{\"name\": \"");
  EXPECT_EQ(matcher.forced_text(3), "{\"n");
  for (const char c : std::string("{\"name\": \"")) ASSERT_TRUE(matcher.accept(c));
  EXPECT_EQ(matcher.forced_text(), "");
  ASSERT_TRUE(matcher.accept('x'));
  EXPECT_EQ(matcher.forced_text(), "");
  ASSERT_TRUE(matcher.accept('"'));
  EXPECT_EQ(matcher.forced_text(), "}");
  ASSERT_TRUE(matcher.accept('}'));
  EXPECT_EQ(matcher.forced_text(), "") << "it may end here";
  EXPECT_EQ(Matcher(compiled("root ::= \"ab\" \"c\"?")).forced_text(), "ab");
  EXPECT_EQ(Matcher(compiled("root ::= \"é\" | \"è\"")).forced_text(), "\xC3");
}

// The bound on parallel readings cuts off; what it leaves is still right.
TEST(Matcher, AmbiguityBeyondTheLimitIsRefusedNotFollowed) {
  const auto grammar = compiled("root ::= s\ns ::= \"a\" s s | \"a\"");
  Matcher matcher(grammar);
  uint32_t read = 0;
  while (read < 5000 && matcher.accept('a')) ++read;
  EXPECT_GE(read, 100U);
  // Here a mask may still hold what accept() no longer takes.
  const std::set<int32_t> mask = allowed(matcher);
  for (const int32_t token : accepted_one_by_one(matcher)) EXPECT_TRUE(mask.contains(token));
}

// What the quick calls find is what the patient ones do, and giving up changes nothing.
void walk_quickly(const std::shared_ptr<const Grammar>& grammar, uint32_t seed, int steps, uint32_t& late) {
  std::mt19937 random(seed);
  Matcher quick(grammar), patient(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words()), expected(mask);
  quick.set_effort(Matcher::Effort::kQuick);
  for (int i = 0; i < steps; ++i) {
    const bool made = quick.fill_mask(mask);
    EXPECT_EQ(made, !quick.gave_up());
    const std::set<int32_t> tokens = allowed(patient);
    ASSERT_TRUE(patient.fill_mask(expected));
    if (made) {
      EXPECT_EQ(mask, expected) << "seed " << seed << ", step " << i;
    } else {
      ++late;
    }
    ASSERT_FALSE(tokens.empty());
    auto chosen = tokens.begin();
    std::advance(chosen, random() % tokens.size());
    ASSERT_TRUE(patient.accept(*chosen));
    if (!quick.accept(*chosen)) {
      ASSERT_TRUE(quick.gave_up());
      ++late;
      quick.set_effort(Matcher::Effort::kPatient);
      ASSERT_TRUE(quick.accept(*chosen));
      EXPECT_FALSE(quick.gave_up());
      quick.set_effort(Matcher::Effort::kQuick);
    }
    EXPECT_EQ(quick.is_complete(), patient.is_complete());
    if (patient.is_ended()) return;
  }
}

TEST(Matcher, QuickCallsGiveUpWhereAMaskWouldHaveToBeMade) {
  const auto grammar = compiled(kJson, json_vocabulary());
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  matcher.set_effort(Matcher::Effort::kQuick);
  EXPECT_FALSE(matcher.fill_mask(mask));
  EXPECT_TRUE(matcher.gave_up());
  EXPECT_TRUE(matcher.accept('{')) << "nothing has to be made for that";
  EXPECT_FALSE(matcher.gave_up());
  EXPECT_FALSE(matcher.accept('x'));
  EXPECT_FALSE(matcher.gave_up()) << "that it does not fit is an answer";
  EXPECT_EQ(grammar->made_mask(MaskPlace::of(0)), nullptr);
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  EXPECT_TRUE(matcher.fill_mask(mask));
  uint32_t late = 0;
  for (uint32_t seed = 0; seed < 10; ++seed) walk_quickly(grammar, seed, 60, late);
  EXPECT_EQ(late, 0U) << "all masks are made";

  // Masks by callers alike.
  const auto callers =
      compiled("root ::= \"[\" s (\", \" s)* \"]\"\ns ::= \"\\\"\" c* \"\\\"\"" + std::string(kCharacter),
               vocabulary_of_words());
  walk_quickly(callers, 1, 12, late);
  EXPECT_GT(std::exchange(late, 0), 0U);
  EXPECT_EQ(callers->prepare(std::chrono::hours(1)), 0U);
  for (uint32_t seed = 0; seed < 3; ++seed) walk_quickly(callers, seed, 12, late);
  EXPECT_EQ(late, 0U);
}

// Each "abc" is one to three options, and each number of them a reading of its own.
TEST(Matcher, QuickCallsGiveUpWhereATextHasManyReadings) {
  const auto vocabulary =
      vocabulary_of({"</s>", "a", "b", "c", "abcabcabcabcabcabcabcabcabcabcabcabcabcabc"});
  const auto grammar = compiled("root ::= (\"a\"? \"b\"? [c-z]?){0,100000}", vocabulary);
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  Matcher quick(grammar), patient(grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  uint32_t late = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(patient.accept(4));
    quick.set_effort(Matcher::Effort::kQuick);
    if (!quick.accept(4)) {
      ++late;
      ASSERT_TRUE(quick.gave_up());
      quick.set_effort(Matcher::Effort::kPatient);
      ASSERT_TRUE(quick.accept(4)) << "giving up has changed something";
    }
    EXPECT_EQ(allowed(quick), allowed(patient));
    EXPECT_EQ(quick.rollback_available(), patient.rollback_available());
  }
  EXPECT_GT(late, 0U);
}

// Masks that there is no room for are not kept, and the vocabulary is walked.
TEST(Matcher, MasksTakeNoMoreMemoryThanTheyMay) {
  const auto rules = parse_gbnf(kJson);
  ASSERT_TRUE(rules.has_value());
  const std::size_t room = 4096;
  const auto grammar = Grammar::compile(*rules, json_vocabulary(), {.bytes = room});
  ASSERT_TRUE(grammar.has_value());
  const std::size_t before = (*grammar)->memory_bytes();
  EXPECT_EQ((*grammar)->prepare(std::chrono::hours(1)), 0U) << "nothing more can be made";
  for (uint32_t seed = 0; seed < 5; ++seed) walk_and_compare(*grammar, seed, 40);
  EXPECT_GT((*grammar)->memory_bytes(), before);
  EXPECT_LT((*grammar)->memory_bytes(), before + 2 * room) << "the last one may be larger than what is left";
  uint32_t late = 0;
  walk_quickly(*grammar, 1, 40, late);
  EXPECT_GT(late, 0U);
}

TEST(Matcher, ThreadsShareAGrammar) {
  const auto grammar = compiled(kJson, json_vocabulary());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { walk_and_compare(grammar, i, 60); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Grammar, PreparesAllMasksOrSaysHowManyAreLeft) {
  const auto grammar = compiled(kJson, json_vocabulary());
  const std::size_t before = grammar->memory_bytes();
  EXPECT_EQ(grammar->prepare(std::chrono::nanoseconds(-1)), grammar->automaton().state_count());
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  EXPECT_GT(grammar->memory_bytes(), before);
}

}  // namespace
}  // namespace strata::grammar
