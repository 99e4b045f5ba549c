#pragma once
// Which bytes can come behind a rule, whoever called it: an upper bound of what the rest of a token may be
// after the rule ended inside it. Calls and returns are not matched with each other, so there are finitely
// many sets; they are made while they are used.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "services/grammar/automaton.h"

namespace strata::grammar {

class FollowSets {
 public:
  using Id = int32_t;
  static constexpr Id kDead = -1;
  static constexpr Id kOverflow = -2;  // too many sets; nothing is known

  explicit FollowSets(const Automaton& automaton);

  Id behind(RuleId rule);
  Id step(Id from, uint8_t byte);

 private:
  struct Node {
    std::vector<StateId> states;  // that read bytes
    std::unique_ptr<std::array<Id, 256>> next;
  };
  Id node_of(std::vector<StateId> kernel);

  const Automaton& automaton_;
  std::vector<Node> nodes_;
  std::map<std::vector<StateId>, Id> by_kernel_;
  std::vector<Id> behind_;
  std::vector<bool> seen_;  // (states) scratch
  std::size_t places_ = 0;  // in all nodes
};

}  // namespace strata::grammar
