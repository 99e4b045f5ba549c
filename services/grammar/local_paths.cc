#include "services/grammar/local_paths.h"

#include <algorithm>

namespace strata::grammar {
namespace {

constexpr std::size_t kPlacesMax = 512;     // of one node
constexpr std::size_t kPathsMax = 1 << 16;  // 64 MiB
constexpr LocalPaths::Id kUnknown = -3;

}  // namespace

LocalPaths::LocalPaths(const Automaton& automaton) : automaton_(automaton), callers_(1) {}

LocalPaths::Id LocalPaths::start(const MaskPlace& from) {
  const auto [found, is_new] = starts_.try_emplace(from, static_cast<Id>(nodes_.size()));
  if (!is_new) return found->second;
  // From the rule that the path stays in, which has not begun anew yet, down to the state.
  Place place{from.outermost(), 0, 0};
  for (uint32_t i = from.count - 1; i-- > 0;) place = {from.states[i], 1, stack_of(place)};
  nodes_.push_back({.places = {place}, .restarts = 0, .exits = {}, .next = nullptr});
  return found->second;
}

LocalPaths::Id LocalPaths::step(Id from, uint8_t byte) {
  if (!nodes_[index(from)].next) {
    nodes_[index(from)].next = std::make_unique<std::array<Id, 256>>();
    nodes_[index(from)].next->fill(kUnknown);
  }
  const Id known = (*nodes_[index(from)].next)[byte];
  if (known != kUnknown) return known;
  std::vector<Place> kernel;
  for (const Place& place : nodes_[index(from)].places) {
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(automaton_.state(place.state))) {
      if (edge.first > byte) break;
      if (edge.last >= byte) kernel.push_back({edge.target, place.count, place.stack});
    }
  }
  const Id next = node_of(std::move(kernel));
  (*nodes_[index(from)].next)[byte] = next;
  return next;
}

LocalPaths::Id LocalPaths::node_of(std::vector<Place> kernel) {
  if (kernel.empty()) return kDead;
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  if (const auto found = by_kernel_.find(kernel); found != by_kernel_.end()) return found->second;
  if (nodes_.size() == kPathsMax) return kOverflow;
  Node node;
  uint32_t restarts = std::numeric_limits<uint8_t>::max();
  for (const Place& place : kernel) restarts = std::min(restarts, restarts_of(place));
  node.restarts = static_cast<uint8_t>(restarts);
  if (!close(kernel, node)) return kOverflow;
  const auto id = static_cast<Id>(nodes_.size());
  nodes_.push_back(std::move(node));
  by_kernel_.emplace(std::move(kernel), id);
  return id;
}

bool LocalPaths::close(std::vector<Place> found, Node& node) {
  const auto add = [&](const Place& place) {
    spend(found.size());
    if (std::find(found.begin(), found.end(), place) == found.end()) found.push_back(place);
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found.size() > kPlacesMax || out_of_work()) return false;
    const Place place = found[i];
    const Automaton::State& state = automaton_.state(place.state);
    const Automaton::Rule& rule = automaton_.rule(state.rule);
    if (state.accepting && place.stack == 0) {
      const auto restarts = static_cast<uint8_t>(place.count);
      if (std::find(node.exits.begin(), node.exits.end(), restarts) == node.exits.end()) {
        node.exits.push_back(restarts);
      }
      if (rule.counted) add({rule.start, place.count + 1, 0});
    } else if (state.accepting) {
      if (rule.counted && place.count < rule.max) add({rule.start, place.count + 1, place.stack});
      if (!rule.counted || place.count >= rule.min) add(Place(callers_[place.stack].place));
    }
    for (const Automaton::CallEdge& edge : automaton_.call_edges(state)) {
      add({automaton_.rule(edge.rule).start, 1, stack_of({edge.target, place.count, place.stack})});
    }
    if (state.bytes_begin != state.bytes_end) node.places.push_back(place);
  }
  return true;
}

uint32_t LocalPaths::stack_of(const Place& caller) {
  const auto [found, is_new] = stacks_.try_emplace(caller, static_cast<uint32_t>(callers_.size()));
  if (is_new) callers_.push_back({caller, restarts_of(caller)});
  return found->second;
}

}  // namespace strata::grammar
