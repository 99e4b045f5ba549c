#pragma once
// From the states with empty steps of one rule to states without: deterministic by bytes where that stays
// small, otherwise with several edges for a byte.

#include <cstdint>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/automaton.h"
#include "services/grammar/nfa.h"

namespace strata::grammar {

struct RuleAutomaton {
  struct State {
    std::vector<Automaton::ByteEdge> bytes;    // sorted
    std::vector<Automaton::CallEdge> calls;    // rule: an id of the plan; sorted
    std::vector<Automaton::TokenEdge> tokens;  // sorted
    bool accepting = false;
  };
  std::vector<State> states;  // 0 is the start; every state can reach an accepting one
};

// Errors: kResourceExhausted if even without determinization there are more than kEdgesMax edges.
Result<RuleAutomaton> make_rule_automaton(const Nfa& nfa, std::string_view name);

}  // namespace strata::grammar
