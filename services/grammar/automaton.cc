#include "services/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <optional>

#include "services/grammar/limits.h"
#include "services/grammar/nfa.h"
#include "services/grammar/rule_automaton.h"

namespace strata::grammar {

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Rules& rules, const RulePlan& plan, const Vocabulary& vocabulary)
      : rules_(rules), plan_(plan), vocabulary_(vocabulary) {}

  Result<Automaton> build() {
    id_of(rules_.root());
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      TRY_OK(add_rule(planned_[i]));
    }
    for (const Automaton::State& state : result_.states_) {
      for (const Automaton::CallEdge& edge : result_.call_edges(state)) {
        result_.rules_[edge.rule].return_states.push_back(edge.target);
      }
    }
    for (Automaton::Rule& rule : result_.rules_) {
      std::sort(rule.return_states.begin(), rule.return_states.end());
      rule.return_states.erase(std::unique(rule.return_states.begin(), rule.return_states.end()),
                               rule.return_states.end());
    }
    return std::move(result_);
  }

 private:
  RuleId id_of(RuleId planned) {
    const auto [found, is_new] = ids_.try_emplace(planned, static_cast<RuleId>(planned_.size()));
    if (is_new) planned_.push_back(planned);
    return found->second;
  }

  Status add_rule(RuleId planned) {
    const PlannedRule& plan = plan_.rules[planned];
    TRY(const Nfa nfa, build_nfa(rules_, plan_, planned, vocabulary_, kStatesMax - result_.state_count()));
    TRY(const RuleAutomaton automaton, make_rule_automaton(nfa, plan.name));
    const StateId base = result_.state_count();
    const auto id = static_cast<RuleId>(result_.rules_.size());
    result_.rules_.push_back({.name = plan.name,
                              .start = base,
                              .nullable = plan.nullable,
                              .counted = plan.counted,
                              // Of what may be empty, fewer will do: empty ones make up for the rest.
                              .min = plan.nullable ? 1 : plan.min,
                              .max = plan.max});
    for (const RuleAutomaton::State& from : automaton.states) {
      Automaton::State state{.rule = id, .accepting = from.accepting};
      state.bytes_begin = static_cast<uint32_t>(result_.byte_edges_.size());
      for (Automaton::ByteEdge edge : from.bytes) {
        edge.target += base;
        result_.byte_edges_.push_back(edge);
      }
      state.bytes_end = static_cast<uint32_t>(result_.byte_edges_.size());
      state.calls_begin = static_cast<uint32_t>(result_.call_edges_.size());
      for (const Automaton::CallEdge& edge : from.calls) {
        result_.call_edges_.push_back({id_of(edge.rule), edge.target + base});
      }
      state.calls_end = static_cast<uint32_t>(result_.call_edges_.size());
      state.tokens_begin = static_cast<uint32_t>(result_.token_edges_.size());
      for (Automaton::TokenEdge edge : from.tokens) {
        edge.target += base;
        result_.token_edges_.push_back(edge);
      }
      state.tokens_end = static_cast<uint32_t>(result_.token_edges_.size());
      result_.states_.push_back(state);
    }
    if (result_.state_count() > kStatesMax || result_.byte_edges_.size() > kEdgesMax) {
      return fail(Code::kResourceExhausted, "grammar: needs more than {} states or {} edges (at rule \"{}\")",
                  kStatesMax, kEdgesMax, plan.name);
    }
    return {};
  }

  const Rules& rules_;
  const RulePlan& plan_;
  const Vocabulary& vocabulary_;
  Automaton result_;
  std::map<RuleId, RuleId> ids_;  // of the plan -> of the automaton
  std::vector<RuleId> planned_;   // (rules of the automaton)
};

Result<Automaton> Automaton::build(const Rules& rules, const RulePlan& plan, const Vocabulary& vocabulary) {
  return AutomatonBuilder(rules, plan, vocabulary).build();
}

std::size_t Automaton::memory_bytes() const {
  std::size_t bytes = states_.size() * sizeof(State) + byte_edges_.size() * sizeof(ByteEdge) +
                      call_edges_.size() * sizeof(CallEdge) + token_edges_.size() * sizeof(TokenEdge);
  for (const Rule& rule : rules_) {
    bytes += sizeof(Rule) + rule.name.size() + rule.return_states.size() * sizeof(StateId);
  }
  return bytes;
}

}  // namespace strata::grammar
