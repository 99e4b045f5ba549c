#pragma once
// A compiled grammar: one byte automaton per rule, with calls between them (a pushdown automaton). Built
// once, then read only.
//
// Reading begins in the start state of rule 0. In a state the next byte follows a byte edge; a call may be
// taken first, which begins the callee's automaton and goes on at the edge's target once that accepts. Start
// states never accept and are never entered again: a rule that matches the empty text is `nullable`, and its
// callers step over it, so no call ends where it began. From every state the rule can be completed.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/rule_plan.h"
#include "services/grammar/rules.h"
#include "services/grammar/vocabulary.h"

namespace strata::grammar {

using StateId = uint32_t;

class Automaton {
 public:
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;  // included
    StateId target = 0;
    bool operator==(const ByteEdge&) const = default;
  };
  struct CallEdge {
    RuleId rule = 0;
    StateId target = 0;
    bool operator==(const CallEdge&) const = default;
  };
  struct TokenEdge {
    int32_t token = 0;
    StateId target = 0;
    bool operator==(const TokenEdge&) const = default;
  };
  struct State {
    uint32_t bytes_begin = 0, bytes_end = 0;  // sorted by first byte; several may fit where no DFA was made
    uint32_t calls_begin = 0, calls_end = 0;
    uint32_t tokens_begin = 0, tokens_end = 0;
    RuleId rule = 0;
    bool accepting = false;
  };
  struct Rule {
    std::string name;
    StateId start = 0;
    bool nullable = false;
    // A counted rule begins again where it accepts, until it was matched `max` times; it ends after `min` or
    // more.
    bool counted = false;
    uint32_t min = 1, max = 1;
    std::vector<StateId> return_states = {};  // targets of all calls, sorted
  };

  // Errors: kResourceExhausted beyond limits.h; kInvalidArgument for a token id that the vocabulary does not
  // have.
  static Result<Automaton> build(const Rules& rules, const RulePlan& plan, const Vocabulary& vocabulary);

  uint32_t state_count() const { return static_cast<uint32_t>(states_.size()); }
  const State& state(StateId id) const { return states_[id]; }
  uint32_t rule_count() const { return static_cast<uint32_t>(rules_.size()); }
  const Rule& rule(RuleId id) const { return rules_[id]; }
  std::span<const ByteEdge> byte_edges(const State& state) const {
    return std::span(byte_edges_).subspan(state.bytes_begin, state.bytes_end - state.bytes_begin);
  }
  std::span<const CallEdge> call_edges(const State& state) const {
    return std::span(call_edges_).subspan(state.calls_begin, state.calls_end - state.calls_begin);
  }
  std::span<const TokenEdge> token_edges(const State& state) const {
    return std::span(token_edges_).subspan(state.tokens_begin, state.tokens_end - state.tokens_begin);
  }
  std::size_t memory_bytes() const;

 private:
  friend class AutomatonBuilder;

  std::vector<State> states_;
  std::vector<Rule> rules_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<TokenEdge> token_edges_;
};

}  // namespace strata::grammar
