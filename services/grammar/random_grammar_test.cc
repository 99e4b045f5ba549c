// Random grammars against a recognizer that reads the rules directly: the compiled automaton must match the
// same texts, and its masks must be what trying each token gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>

#include "services/grammar/gbnf.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

// All places where a node that begins at `from` can end. No left recursion, so this ends.
class Recognizer {
 public:
  Recognizer(const Rules& rules, std::string_view text) : rules_(rules), text_(text) {}
  bool whole() { return ends(rules_.body(rules_.root()), 0).contains(text_.size()); }

 private:
  std::set<std::size_t> ends(NodeId id, std::size_t from) {
    if (const auto known = known_.find({id, from}); known != known_.end()) return known->second;
    std::set<std::size_t> result;
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kBytes:
        if (text_.substr(from).starts_with(rules_.text(node))) result.insert(from + rules_.text(node).size());
        break;
      case NodeKind::kChars:
        if (from < text_.size() && rules_.set(node).contains(static_cast<uint8_t>(text_[from])))
          result.insert(from + 1);
        break;
      case NodeKind::kSequence: {
        result = {from};
        for (const NodeId child : node.children) result = behind(child, result);
        break;
      }
      case NodeKind::kChoice:
        for (const NodeId child : node.children) result.merge(ends(child, from));
        break;
      case NodeKind::kRepeat: {
        std::set<std::size_t> here = {from};
        // More rounds than bytes change nothing: what is left must be empty matches.
        for (uint32_t i = 0; i <= node.max && i <= node.min + text_.size() + 1 && !here.empty(); ++i) {
          if (i >= node.min) result.insert(here.begin(), here.end());
          here = behind(node.children[0], here);
        }
        break;
      }
      case NodeKind::kRule:
        result = ends(rules_.body(node.index), from);
        break;
      case NodeKind::kToken:
      case NodeKind::kTokenId:
        break;
    }
    known_[{id, from}] = result;
    return result;
  }
  std::set<std::size_t> behind(NodeId id, const std::set<std::size_t>& places) {
    std::set<std::size_t> result;
    for (const std::size_t place : places) result.merge(ends(id, place));
    return result;
  }

  const Rules& rules_;
  std::string_view text_;
  std::map<std::pair<NodeId, std::size_t>, std::set<std::size_t>> known_;
};

class RandomGrammar {
 public:
  explicit RandomGrammar(uint32_t seed) : random_(seed) {}

  Rules make() {
    const uint32_t count = 1 + random_() % 4;
    for (uint32_t i = 0; i < count; ++i) rules_.rule(i == 0 ? "root" : fmt::format("r{}", i));
    for (RuleId rule = 0; rule < count; ++rule) rules_.define(rule, node(3));
    return rules_;
  }

 private:
  NodeId node(int depth) {
    switch (random_() % (depth == 0 ? 4 : 10)) {
      case 0:
        return rules_.bytes(std::string(1 + random_() % 3, static_cast<char>('a' + random_() % 3)));
      case 1:
        return rules_.chars(CodePoints({{U'a', static_cast<char32_t>('a' + random_() % 3)}}));
      case 2:
        return rules_.bytes(random_() % 4 == 0 ? "" : "ab");
      case 3:
        return rules_.reference(random_() % rules_.rule_count());
      case 4:
      case 5:
        return rules_.choice({node(depth - 1), node(depth - 1)});
      case 6: {
        const uint32_t min = random_() % 3;
        return rules_.repeat(node(depth - 1), min, random_() % 3 == 0 ? kUnbounded : min + random_() % 4);
      }
      case 7: {
        const uint32_t min = random_() % 3;
        return rules_.repeat(node(depth - 1), min, min + 97);  // counted
      }
      default:
        return rules_.sequence({node(depth - 1), node(depth - 1), node(depth - 1)});
    }
  }

  std::mt19937 random_;
  Rules rules_;
};

std::vector<std::string> short_texts() {
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; texts[i].size() < 6; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  return texts;
}

TEST(RandomGrammars, MatchWhatTheRulesSay) {
  const std::vector<std::string> texts = short_texts();
  int tested = 0, matched = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const Rules rules = RandomGrammar(seed).make();
    auto grammar = Grammar::compile(rules, byte_vocabulary());
    if (!grammar) continue;  // left recursion, or matches nothing
    ++tested;
    // Through text and back, too: every other seed.
    if (seed % 2 == 1) grammar = Grammar::from_gbnf(rules.to_gbnf().value(), byte_vocabulary());
    ASSERT_TRUE(grammar.has_value()) << rules.to_gbnf().value();
    std::set<std::string> prefixes;
    for (auto text = texts.rbegin(); text != texts.rend(); ++text) {
      const bool expected = Recognizer(rules, *text).whole();
      const Match got = match(*grammar, *text);
      ASSERT_EQ(got == Match::kWhole, expected) << "seed " << seed << " text " << *text << "\n"
                                                << rules.to_gbnf().value();
      matched += expected ? 1 : 0;
      if (expected) {
        for (std::size_t i = 0; i <= text->size(); ++i) prefixes.insert(text->substr(0, i));
      }
      ASSERT_FALSE(prefixes.contains(*text) && got == Match::kNo) << "seed " << seed << " prefix " << *text;
    }
  }
  EXPECT_GT(tested, 200);
  EXPECT_GT(matched, 5000);
}

TEST(RandomGrammars, MasksEqualTryingEachToken) {
  std::vector<std::string> texts = short_texts();
  std::erase_if(texts, [](const std::string& text) { return text.empty() || text.size() > 4; });
  texts.emplace_back("</s>");
  texts.emplace_back(12, 'a');
  texts.emplace_back("aaaaaaaaab");
  const auto vocabulary = vocabulary_of(texts);
  int tested = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Rules rules = RandomGrammar(seed).make();
    const auto grammar = Grammar::compile(rules, vocabulary);
    if (!grammar) continue;
    ++tested;
    std::mt19937 random(seed);
    Matcher matcher(*grammar);
    // Not for long: ambiguous grammars reach the limit on parallel readings (matcher_test.cc has that).
    std::size_t bytes = 0;
    for (int step = 0; step < 12 && bytes < 20; ++step) {
      const std::set<int32_t> tokens = allowed(matcher);
      const std::set<int32_t> expected = accepted_one_by_one(matcher);
      std::vector<int32_t> differ;
      std::set_symmetric_difference(tokens.begin(), tokens.end(), expected.begin(), expected.end(),
                                    std::back_inserter(differ));
      ASSERT_TRUE(differ.empty()) << "seed " << seed << " step " << step << " token "
                                  << vocabulary->bytes(differ.front()) << "\n"
                                  << rules.to_gbnf().value();
      if (tokens.empty()) break;
      auto chosen = tokens.begin();
      std::advance(chosen, random() % tokens.size());
      ASSERT_TRUE(matcher.accept(*chosen));
      bytes += vocabulary->bytes(*chosen).size();
    }
    EXPECT_TRUE(matcher.is_complete() || matcher.is_ended() || !matcher.only_end_allowed());
  }
  EXPECT_GT(tested, 150);
}

}  // namespace
}  // namespace strata::grammar
