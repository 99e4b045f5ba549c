#pragma once
// Decides how rules become automata, before any state is made: which are copied into their callers, which are
// merged with a caller because they only ever end it, which repetitions count at run time; and refuses
// grammars that no automaton of ours can follow.

#include <string>
#include <unordered_map>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/rules.h"

namespace strata::grammar {

struct PlannedRule {
  std::string name;
  NodeId body = kNoNode;
  bool reachable = false;
  bool nullable = false;      // matches the empty text
  bool productive = false;    // matches any text at all
  bool inlined = false;       // copied to where it is called
  bool fits_counted = false;  // copied into counted rules: calls nothing and is not large
  // The rule whose automaton it is part of; itself, or a rule that calls it in last place, where nothing has
  // to be remembered: right recursion becomes a loop and a chain of rules one automaton.
  RuleId owner = 0;
  // A repetition that counts at run time: the body, min to max times.
  bool counted = false;
  uint32_t min = 1, max = 1;
};

struct RulePlan {
  std::vector<PlannedRule> rules;  // those of Rules with the same ids, then the counted ones
  // kRepeat node -> counted rule. For an unbounded repetition it counts the first `min`, a loop follows.
  std::unordered_map<NodeId, RuleId> counted;
};

// Errors: kInvalidArgument for left recursion (naming the rules) and for a root that matches nothing;
// kResourceExhausted beyond limits.h.
Result<RulePlan> plan_rules(const Rules& rules);

}  // namespace strata::grammar
