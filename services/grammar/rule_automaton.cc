#include "services/grammar/rule_automaton.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

using Subset = std::vector<uint32_t>;  // states of the Nfa, sorted

struct SubsetHash {
  std::size_t operator()(const Subset& subset) const {
    uint64_t hash = 0x9E3779B97F4A7C15;
    for (const uint32_t state : subset) hash = (hash ^ state) * 0x100000001B3 + (hash >> 29);
    return hash;
  }
};

// What a subset leads to.
struct Moves {
  struct ByBytes {
    uint8_t first = 0, last = 0;
    Subset targets;
  };
  std::vector<ByBytes> bytes;
  std::map<uint32_t, Subset> calls, tokens;
};

class Determinizer {
 public:
  // work: nodes of closures that may be looked at.
  Determinizer(const Nfa& nfa, std::size_t work) : nfa_(nfa), work_(work), seen_(nfa.state_count) {}

  // Nothing if it would take too many states or too much work.
  std::optional<RuleAutomaton> run() {
    const std::size_t states_max = std::size_t{4} * nfa_.state_count + 64;
    Subset start = {Nfa::kStart};
    close(start);
    // The start is no target of anything: that would make a call end where it began.
    add_state(start);
    result_.states[0].accepting = false;
    for (std::size_t i = 0; i < subsets_.size(); ++i) {
      if (work_ == 0 || subsets_.size() > states_max) return std::nullopt;
      Moves moves = moves_of(subsets_[i]);
      std::vector<Automaton::ByteEdge> bytes;
      for (Moves::ByBytes& move : moves.bytes) {
        bytes.push_back({move.first, move.last, state_of(std::move(move.targets))});
      }
      result_.states[i].bytes = std::move(bytes);
      for (auto& [rule, targets] : moves.calls) {
        const StateId target = state_of(std::move(targets));
        result_.states[i].calls.push_back({rule, target});
      }
      for (auto& [token, targets] : moves.tokens) {
        const StateId target = state_of(std::move(targets));
        result_.states[i].tokens.push_back({static_cast<int32_t>(token), target});
      }
    }
    return std::move(result_);
  }

 private:
  void spend(std::size_t steps) { work_ -= std::min(work_, steps); }

  void close(Subset& subset) {
    ++stamp_;
    for (const uint32_t state : subset) seen_[state] = stamp_;
    for (std::size_t i = 0; i < subset.size(); ++i) {
      for (uint32_t e = nfa_.begin[subset[i]]; e < nfa_.begin[subset[i] + 1]; ++e) {
        const NfaEdge& edge = nfa_.edges[e];
        if (edge.kind != NfaEdge::Kind::kEmpty || seen_[edge.to] == stamp_) continue;
        seen_[edge.to] = stamp_;
        subset.push_back(edge.to);
      }
    }
    spend(subset.size());
    std::sort(subset.begin(), subset.end());
  }

  StateId add_state(Subset subset) {
    result_.states.push_back({.bytes = {},
                              .calls = {},
                              .tokens = {},
                              .accepting = std::binary_search(subset.begin(), subset.end(), Nfa::kAccept)});
    subsets_.push_back(std::move(subset));
    return static_cast<StateId>(subsets_.size() - 1);
  }

  StateId state_of(Subset targets) {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    close(targets);
    if (const auto found = by_subset_.find(targets); found != by_subset_.end()) return found->second;
    const StateId id = add_state(targets);
    by_subset_.emplace(std::move(targets), id);
    return id;
  }

  Moves moves_of(const Subset& subset) {
    Moves moves;
    std::vector<const NfaEdge*> by_bytes;
    std::array<bool, 257> cut{};
    for (const uint32_t state : subset) {
      for (uint32_t e = nfa_.begin[state]; e < nfa_.begin[state + 1]; ++e) {
        const NfaEdge& edge = nfa_.edges[e];
        if (edge.kind == NfaEdge::Kind::kCall) moves.calls[edge.index].push_back(edge.to);
        if (edge.kind == NfaEdge::Kind::kToken) moves.tokens[edge.index].push_back(edge.to);
        if (edge.kind != NfaEdge::Kind::kBytes) continue;
        by_bytes.push_back(&edge);
        cut[edge.first] = cut[edge.last + 1] = true;
      }
    }
    for (uint32_t first = 0; first < 256;) {
      uint32_t end = first + 1;
      while (!cut[end] && end < 256) ++end;
      Subset targets;
      for (const NfaEdge* edge : by_bytes) {
        if (edge->first <= first && first <= edge->last) targets.push_back(edge->to);
      }
      spend(by_bytes.size());
      if (!targets.empty()) add_bytes(moves, first, end - 1, std::move(targets));
      first = end;
    }
    return moves;
  }

  static void add_bytes(Moves& moves, uint32_t first, uint32_t last, Subset targets) {
    if (!moves.bytes.empty() && moves.bytes.back().last + 1U == first &&
        moves.bytes.back().targets == targets) {
      moves.bytes.back().last = static_cast<uint8_t>(last);
      return;
    }
    moves.bytes.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), std::move(targets)});
  }

  const Nfa& nfa_;
  std::size_t work_;
  std::vector<uint32_t> seen_;  // (states) stamp of the closure that saw it last
  uint32_t stamp_ = 0;
  std::vector<Subset> subsets_;
  std::unordered_map<Subset, StateId, SubsetHash> by_subset_;
  RuleAutomaton result_;
};

// Each state takes over the edges of the states that empty steps lead to.
Result<RuleAutomaton> without_empty_steps(const Nfa& nfa, std::string_view name) {
  RuleAutomaton result;
  // The start is copied, so that the original may be entered again and may accept.
  result.states.resize(nfa.state_count + 1);
  std::vector<uint32_t> seen(nfa.state_count);
  std::size_t edges = 0;
  for (uint32_t state = 0; state <= nfa.state_count; ++state) {
    RuleAutomaton::State& to = result.states[state];
    std::vector<uint32_t> work = {state == 0 ? Nfa::kStart : state - 1};
    seen[work[0]] = state + 1;
    while (!work.empty()) {
      const uint32_t from = work.back();
      work.pop_back();
      to.accepting = to.accepting || (from == Nfa::kAccept && state != 0);
      for (uint32_t e = nfa.begin[from]; e < nfa.begin[from + 1]; ++e) {
        const NfaEdge& edge = nfa.edges[e];
        const StateId target = edge.to + 1;
        if (++edges > kEdgesMax) {
          return fail(Code::kResourceExhausted, "grammar: rule \"{}\" needs more than {} edges", name,
                      kEdgesMax);
        }
        switch (edge.kind) {
          case NfaEdge::Kind::kEmpty:
            if (seen[edge.to] != state + 1) work.push_back(edge.to);
            seen[edge.to] = state + 1;
            break;
          case NfaEdge::Kind::kBytes:
            to.bytes.push_back({edge.first, edge.last, target});
            break;
          case NfaEdge::Kind::kCall:
            to.calls.push_back({edge.index, target});
            break;
          case NfaEdge::Kind::kToken:
            to.tokens.push_back({static_cast<int32_t>(edge.index), target});
            break;
        }
      }
    }
    std::sort(to.bytes.begin(), to.bytes.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.last, a.target) < std::tie(b.first, b.last, b.target);
    });
  }
  return result;
}

template <class Visit>
void for_each_target(RuleAutomaton::State& state, const Visit& visit) {
  for (auto& edge : state.bytes) visit(edge.target);
  for (auto& edge : state.calls) visit(edge.target);
  for (auto& edge : state.tokens) visit(edge.target);
}

// Leaves out what the start does not reach and what never accepts.
void trim(RuleAutomaton& automaton) {
  std::vector<RuleAutomaton::State>& states = automaton.states;
  std::vector<std::vector<StateId>> sources(states.size());
  std::vector<bool> reached(states.size()), useful(states.size());
  std::vector<StateId> work = {0};
  reached[0] = true;
  while (!work.empty()) {
    const StateId from = work.back();
    work.pop_back();
    for_each_target(states[from], [&](StateId target) {
      sources[target].push_back(from);
      if (!reached[target]) work.push_back(target);
      reached[target] = true;
    });
  }
  for (StateId id = 0; id < states.size(); ++id) {
    if (!states[id].accepting || !reached[id]) continue;
    useful[id] = true;
    work.push_back(id);
  }
  while (!work.empty()) {
    const StateId to = work.back();
    work.pop_back();
    for (const StateId source : sources[to]) {
      if (!useful[source]) work.push_back(source);
      useful[source] = true;
    }
  }
  useful[0] = true;  // the start of a rule that matches the empty text alone accepts nothing and stays
  std::vector<StateId> new_ids(states.size());
  std::vector<RuleAutomaton::State> kept;
  for (StateId id = 0; id < states.size(); ++id) {
    if (!useful[id]) continue;
    new_ids[id] = static_cast<StateId>(kept.size());
    std::erase_if(states[id].bytes, [&](const auto& edge) { return !useful[edge.target]; });
    std::erase_if(states[id].calls, [&](const auto& edge) { return !useful[edge.target]; });
    std::erase_if(states[id].tokens, [&](const auto& edge) { return !useful[edge.target]; });
    kept.push_back(std::move(states[id]));
  }
  for (RuleAutomaton::State& state : kept) {
    for_each_target(state, [&](StateId& target) { target = new_ids[target]; });
  }
  states = std::move(kept);
}

// Renames targets and joins what has become the same.
RuleAutomaton::State renamed(const RuleAutomaton::State& state, const std::vector<StateId>& names) {
  RuleAutomaton::State result{
      .bytes = {}, .calls = state.calls, .tokens = state.tokens, .accepting = state.accepting};
  for (const Automaton::ByteEdge& edge : state.bytes) {
    const StateId target = names[edge.target];
    if (!result.bytes.empty() && result.bytes.back().target == target &&
        result.bytes.back().last + 1 == edge.first) {
      result.bytes.back().last = edge.last;
    } else {
      result.bytes.push_back({edge.first, edge.last, target});
    }
  }
  for (Automaton::CallEdge& edge : result.calls) edge.target = names[edge.target];
  for (Automaton::TokenEdge& edge : result.tokens) edge.target = names[edge.target];
  return result;
}

// Moore's refinement: states are one as long as their edges lead to states that are one.
void minimize(RuleAutomaton& automaton) {
  const std::size_t count = automaton.states.size();
  std::vector<StateId> classes(count);
  for (std::size_t i = 0; i < count; ++i) classes[i] = automaton.states[i].accepting ? 1 : 0;
  std::size_t class_count = 0;
  while (true) {
    std::map<std::vector<uint64_t>, StateId> by_signature;
    std::vector<StateId> refined(count);
    for (std::size_t i = 0; i < count; ++i) {
      const RuleAutomaton::State state = renamed(automaton.states[i], classes);
      // The start stays apart: nothing may enter it.
      std::vector<uint64_t> signature = {i == 0 ? count : classes[i], state.bytes.size(), state.calls.size()};
      for (const auto& edge : state.bytes) {
        signature.push_back(uint64_t{edge.first} << 48 | uint64_t{edge.last} << 32 | edge.target);
      }
      for (const auto& edge : state.calls) signature.push_back(uint64_t{edge.rule} << 32 | edge.target);
      for (const auto& edge : state.tokens) {
        signature.push_back(uint64_t{static_cast<uint32_t>(edge.token)} << 32 | edge.target);
      }
      refined[i] = by_signature.try_emplace(std::move(signature), static_cast<StateId>(by_signature.size()))
                       .first->second;
    }
    classes = std::move(refined);
    if (by_signature.size() == class_count) break;
    class_count = by_signature.size();
  }
  // State 0 was numbered first in every round, so the start is class 0.
  std::vector<RuleAutomaton::State> merged(class_count);
  for (std::size_t i = count; i-- > 0;) merged[classes[i]] = renamed(automaton.states[i], classes);
  automaton.states = std::move(merged);
}

}  // namespace

Result<RuleAutomaton> make_rule_automaton(const Nfa& nfa, std::string_view name) {
  // In a deterministic automaton the closures of all states together are about as large as the Nfa; many
  // times that means that it grows exponentially.
  const std::size_t work = std::size_t{1'000'000} + std::size_t{20} * nfa.state_count;
  std::optional<RuleAutomaton> deterministic = Determinizer(nfa, work).run();
  if (!deterministic) {
    TRY(deterministic, without_empty_steps(nfa, name));
    trim(*deterministic);
    return std::move(*deterministic);
  }
  trim(*deterministic);
  if (deterministic->states.size() <= kMinimizedStatesMax) minimize(*deterministic);
  return std::move(*deterministic);
}

}  // namespace strata::grammar
