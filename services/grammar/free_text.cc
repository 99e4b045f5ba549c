#include "services/grammar/free_text.h"

#include <map>
#include <vector>

namespace strata::grammar {
namespace {

// How much of the marker has been read when `c` follows its first `read` characters.
std::size_t read_after(std::string_view marker, std::size_t read, char c) {
  std::string seen(marker.substr(0, read));
  seen += c;
  std::size_t longest = seen.size();
  while (!marker.starts_with(std::string_view(seen).substr(seen.size() - longest))) --longest;
  return longest;
}

}  // namespace

NodeId add_free_text(Rules& rules, const FreeText& text) {
  const std::string_view marker = text.marker;
  std::vector<RuleId> states;  // by how much of the marker was read
  for (std::size_t i = 0; i < marker.size(); ++i) states.push_back(rules.add_rule("text"));
  for (std::size_t read = 0; read < marker.size(); ++read) {
    // Only characters of the marker can lead anywhere but to the beginning.
    std::map<std::size_t, CodePoints> by_next;
    CodePoints others = CodePoints::all();
    for (const char c : marker) {
      const auto character = static_cast<char32_t>(c);
      by_next[read_after(marker, read, c)].add(character);
      others = others.minus(CodePoints({{character, character}}));
    }
    by_next[0].add(others);
    std::vector<NodeId> choices;
    for (const auto& [next, set] : by_next) {
      choices.push_back(rules.sequence(
          {rules.chars(set), next == marker.size() ? text.behind : rules.reference(states[next])}));
    }
    rules.define(states[read], rules.choice(std::move(choices)));
  }
  return rules.reference(states[0]);
}

}  // namespace strata::grammar
