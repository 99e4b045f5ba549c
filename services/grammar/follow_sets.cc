#include "services/grammar/follow_sets.h"

#include <algorithm>

namespace strata::grammar {
namespace {

constexpr std::size_t kNodesMax = 1 << 16;      // 64 MiB
constexpr std::size_t kPlacesMax = 16'000'000;  // 64 MiB
constexpr FollowSets::Id kUnknown = -3;

std::size_t index(FollowSets::Id id) { return static_cast<std::size_t>(id); }

}  // namespace

FollowSets::FollowSets(const Automaton& automaton)
    : automaton_(automaton), behind_(automaton.rule_count(), kUnknown), seen_(automaton.state_count()) {}

FollowSets::Id FollowSets::behind(RuleId rule) {
  if (behind_[rule] == kUnknown) behind_[rule] = node_of(automaton_.rule(rule).return_states);
  return behind_[rule];
}

FollowSets::Id FollowSets::step(Id from, uint8_t byte) {
  if (from < 0) return from;
  if (!nodes_[index(from)].next) {
    nodes_[index(from)].next = std::make_unique<std::array<Id, 256>>();
    nodes_[index(from)].next->fill(kUnknown);
  }
  const Id known = (*nodes_[index(from)].next)[byte];
  if (known != kUnknown) return known;
  std::vector<StateId> kernel;
  for (const StateId state : nodes_[index(from)].states) {
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(automaton_.state(state))) {
      if (edge.first > byte) break;
      if (edge.last >= byte) kernel.push_back(edge.target);
    }
  }
  const Id next = node_of(std::move(kernel));
  (*nodes_[index(from)].next)[byte] = next;
  return next;
}

FollowSets::Id FollowSets::node_of(std::vector<StateId> kernel) {
  if (kernel.empty()) return kDead;
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  if (const auto found = by_kernel_.find(kernel); found != by_kernel_.end()) return found->second;
  if (nodes_.size() == kNodesMax || places_ > kPlacesMax) return kOverflow;

  std::vector<StateId> found = kernel;
  for (const StateId state : found) seen_[state] = true;
  const auto add = [&](StateId state) {
    if (!seen_[state]) found.push_back(state);
    seen_[state] = true;
  };
  Node node;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Automaton::State& state = automaton_.state(found[i]);
    const Automaton::Rule& rule = automaton_.rule(state.rule);
    if (state.accepting && rule.counted) add(rule.start);
    if (state.accepting) {
      for (const StateId target : rule.return_states) add(target);
    }
    for (const Automaton::CallEdge& edge : automaton_.call_edges(state))
      add(automaton_.rule(edge.rule).start);
    if (state.bytes_begin != state.bytes_end) node.states.push_back(found[i]);
  }
  for (const StateId state : found) seen_[state] = false;
  places_ += found.size();
  const auto id = static_cast<Id>(nodes_.size());
  nodes_.push_back(std::move(node));
  by_kernel_.emplace(std::move(kernel), id);
  return id;
}

}  // namespace strata::grammar
