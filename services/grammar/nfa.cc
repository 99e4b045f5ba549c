#include "services/grammar/nfa.h"

#include <algorithm>
#include <map>
#include <optional>

#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

class NfaBuilder {
 public:
  NfaBuilder(const Rules& rules, const RulePlan& plan, RuleId rule, const Vocabulary& vocabulary,
             uint32_t states_max)
      : rules_(rules), plan_(plan), rule_(rule), vocabulary_(vocabulary), states_max_(states_max) {}

  Result<Nfa> build() {
    nfa_.state_count = 2;
    begin_of_owned_[rule_] = Nfa::kStart;
    owned_.push_back(rule_);
    // Calls in last place find more rules that belong to this automaton; each is written once.
    for (std::size_t i = 0; i < owned_.size() && status_.ok(); ++i) {
      const uint32_t end = add(plan_.rules[owned_[i]].body, begin_of_owned_[owned_[i]], true);
      add_empty(end, Nfa::kAccept);
    }
    if (!status_.ok()) return Failure(std::move(status_));
    sort_edges();
    return std::move(nfa_);
  }

 private:
  uint32_t new_state() {
    if (nfa_.state_count == states_max_) {
      if (status_.ok()) {
        status_ = Status(Code::kResourceExhausted,
                         fmt::format("grammar: needs more than {} states (at rule \"{}\")", kStatesMax,
                                     plan_.rules[rule_].name));
      }
      return 0;
    }
    return nfa_.state_count++;
  }
  void add_empty(uint32_t from, uint32_t to) { nfa_.edges.push_back({.from = from, .to = to}); }
  void add_bytes(uint32_t from, ByteRange range, uint32_t to) {
    nfa_.edges.push_back(
        {.from = from, .to = to, .kind = NfaEdge::Kind::kBytes, .first = range.first, .last = range.last});
  }

  // Writes the expression from `from` on and returns the state behind it. `from` gets no edge back into it,
  // so alternatives may begin in the same state. last: nothing of this automaton comes behind.
  uint32_t add(NodeId id, uint32_t from, bool last) {
    if (!status_.ok()) return from;
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kBytes:
        return add_text(rules_.text(node), from);
      case NodeKind::kChars:
        return add_chars(rules_.set(node), from);
      case NodeKind::kSequence:
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          from = add(node.children[i], from, last && i + 1 == node.children.size());
        }
        return from;
      case NodeKind::kChoice: {
        const uint32_t end = new_state();
        for (const NodeId child : node.children) add_empty(add(child, from, last), end);
        return end;
      }
      case NodeKind::kRepeat:
        return add_repeat(id, node, from, last);
      case NodeKind::kRule:
        return add_call(node.index, from, last);
      case NodeKind::kToken:
        return add_token(rules_.text(node), from);
      case NodeKind::kTokenId:
        return add_token_id(node.index, from);
    }
    return from;
  }

  uint32_t add_text(const std::string& text, uint32_t from) {
    for (const char c : text) {
      const uint32_t to = new_state();
      add_bytes(from, {static_cast<uint8_t>(c), static_cast<uint8_t>(c)}, to);
      from = to;
    }
    return from;
  }

  uint32_t add_chars(const CodePoints& set, uint32_t from) {
    const uint32_t end = new_state();
    // Sequences with the same last bytes share the states of these.
    std::map<std::vector<uint16_t>, uint32_t> by_rest;
    for (const CodeRange& range : set.ranges()) {
      for_each_utf8_sequence(range, [&](std::span<const ByteRange> sequence) {
        uint32_t to = end;
        std::vector<uint16_t> rest;
        for (std::size_t i = sequence.size(); i-- > 1;) {
          rest.push_back(static_cast<uint16_t>(sequence[i].first << 8 | sequence[i].last));
          const auto [found, is_new] = by_rest.try_emplace(rest, 0);
          if (is_new) {
            found->second = new_state();
            add_bytes(found->second, sequence[i], to);
          }
          to = found->second;
        }
        add_bytes(from, sequence[0], to);
      });
    }
    return end;
  }

  uint32_t add_repeat(NodeId id, const Node& node, uint32_t from, bool last) {
    const NodeId child = node.children[0];
    if (const auto counted = plan_.counted.find(id); counted != plan_.counted.end()) {
      from = add_call(counted->second, from, false);
      return node.max == kUnbounded ? add_loop(child, from) : from;
    }
    for (uint32_t i = 0; i < node.min; ++i) from = add(child, from, last && node.max == 1);
    if (node.max == kUnbounded) return add_loop(child, from);
    const uint32_t end = new_state();
    for (uint32_t i = node.min; i < node.max; ++i) {
      add_empty(from, end);
      from = add(child, from, last && node.max == 1);
    }
    add_empty(from, end);
    return end;
  }

  uint32_t add_loop(NodeId child, uint32_t from) {
    const uint32_t again = new_state(), end = new_state();
    add_empty(from, again);
    add_empty(add(child, again, false), again);
    add_empty(again, end);
    return end;
  }

  uint32_t add_call(RuleId callee, uint32_t from, bool last) {
    const PlannedRule& rule = plan_.rules[callee];
    if (rule.inlined || (rule.fits_counted && plan_.rules[rule_].counted)) return add(rule.body, from, false);
    const uint32_t to = new_state();
    if (last && rule.owner == plan_.rules[rule_].owner) {
      const auto [found, is_new] = begin_of_owned_.try_emplace(callee, 0);
      if (is_new) {
        found->second = new_state();
        owned_.push_back(callee);
      }
      // Into the callee without coming back: it ends where this automaton ends. Nothing leads to `to`.
      add_empty(from, found->second);
      return to;
    }
    if (rule.productive) {
      nfa_.edges.push_back({.from = from, .to = to, .kind = NfaEdge::Kind::kCall, .index = callee});
    }
    if (rule.nullable) add_empty(from, to);
    return to;
  }

  uint32_t add_token(const std::string& spelling, uint32_t from) {
    const std::optional<int32_t> id = vocabulary_.special(spelling);
    return id ? add_token_id(static_cast<uint32_t>(*id), from) : add_text(spelling, from);
  }

  uint32_t add_token_id(uint32_t id, uint32_t from) {
    if (id >= vocabulary_.size() && status_.ok()) {
      status_ =
          Status(Code::kInvalidArgument,
                 fmt::format("grammar: there is no token {}, the vocabulary has {}", id, vocabulary_.size()));
    }
    const uint32_t to = new_state();
    nfa_.edges.push_back({.from = from, .to = to, .kind = NfaEdge::Kind::kToken, .index = id});
    return to;
  }

  void sort_edges() {
    nfa_.begin.assign(nfa_.state_count + 1, 0);
    for (const NfaEdge& edge : nfa_.edges) ++nfa_.begin[edge.from + 1];
    for (uint32_t i = 0; i < nfa_.state_count; ++i) nfa_.begin[i + 1] += nfa_.begin[i];
    std::vector<NfaEdge> sorted(nfa_.edges.size());
    std::vector<uint32_t> next(nfa_.begin.begin(), nfa_.begin.end() - 1);
    for (const NfaEdge& edge : nfa_.edges) sorted[next[edge.from]++] = edge;
    nfa_.edges = std::move(sorted);
  }

  const Rules& rules_;
  const RulePlan& plan_;
  const RuleId rule_;
  const Vocabulary& vocabulary_;
  const uint32_t states_max_;
  Nfa nfa_;
  std::map<RuleId, uint32_t> begin_of_owned_;
  std::vector<RuleId> owned_;
  Status status_;
};

}  // namespace

Result<Nfa> build_nfa(const Rules& rules, const RulePlan& plan, RuleId rule, const Vocabulary& vocabulary,
                      uint32_t states_max) {
  return NfaBuilder(rules, plan, rule, vocabulary, states_max).build();
}

}  // namespace strata::grammar
