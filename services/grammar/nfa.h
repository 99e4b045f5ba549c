#pragma once
// The automaton of one rule (and of those it owns) while it is built: states with empty steps, straight from
// the expressions.

#include <cstdint>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/rule_plan.h"
#include "services/grammar/rules.h"
#include "services/grammar/vocabulary.h"

namespace strata::grammar {

struct NfaEdge {
  enum class Kind : uint8_t { kEmpty, kBytes, kCall, kToken };
  uint32_t from = 0;
  uint32_t to = 0;
  Kind kind = Kind::kEmpty;
  uint8_t first = 0, last = 0;  // kBytes
  uint32_t index = 0;           // the called rule (an id of the plan) or the token
};

struct Nfa {
  static constexpr uint32_t kStart = 0, kAccept = 1;
  uint32_t state_count = 0;
  std::vector<NfaEdge> edges;   // sorted by `from`
  std::vector<uint32_t> begin;  // (state_count + 1) into edges
};

// Errors: kResourceExhausted (more than states_max), kInvalidArgument (a token id beyond the vocabulary).
Result<Nfa> build_nfa(const Rules& rules, const RulePlan& plan, RuleId rule, const Vocabulary& vocabulary,
                      uint32_t states_max);

}  // namespace strata::grammar
