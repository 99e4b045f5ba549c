#include "services/grammar/rule_plan.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <tuple>

#include "services/base/check.h"
#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

constexpr RuleId kNoRule = std::numeric_limits<RuleId>::max();
// Bytes that spell characters beyond ASCII take a few states.
constexpr uint32_t kWideClassStates = 8;

struct Site {
  RuleId caller = 0;
  RuleId callee = 0;
  bool last = false;  // nothing of the caller comes behind it
};

class Planner {
 public:
  explicit Planner(const Rules& rules)
      : rules_(rules), sizes_(rules.node_count()), calls_(rules.node_count()) {}

  Result<RulePlan> plan() {
    TRY_OK(check_limits());
    for (RuleId rule = 0; rule < rules_.rule_count(); ++rule) {
      plan_.rules.push_back({.name = rules_.name(rule), .body = rules_.body(rule)});
    }
    TRY_OK(find_reachable());
    find_callers();
    spread([this](NodeId node) { return nullable(node); }, &PlannedRule::nullable);
    spread([this](NodeId node) { return productive(node); }, &PlannedRule::productive);
    if (!plan_.rules[rules_.root()].productive) {
      return fail(Code::kInvalidArgument, "grammar: no text can match rule \"{}\"",
                  rules_.name(rules_.root()));
    }
    TRY_OK(check_left_recursion());
    choose_owners();
    return std::move(plan_);
  }

 private:
  Status check_limits() const {
    if (rules_.rule_count() > kRulesMax || rules_.node_count() > kNodesMax) {
      return fail(Code::kResourceExhausted, "grammar: {} rules and {} expressions, at most {} and {}",
                  rules_.rule_count(), rules_.node_count(), kRulesMax, kNodesMax);
    }
    for (NodeId node = 0; node < rules_.node_count(); ++node) {
      if (rules_.depth(node) > kExpressionDepthMax) {
        return fail(Code::kResourceExhausted, "grammar: more than {} expressions inside each other",
                    kExpressionDepthMax);
      }
    }
    return {};
  }

  // --- Sizes, in states of the written-out automaton. Computed once per node, so that expressions that share
  // parts cost no more than they have nodes.

  uint64_t size(NodeId id) {
    if (sizes_[id] != 0) return sizes_[id];
    uint64_t result = 1;
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kBytes:
      case NodeKind::kToken:
        result += rules_.text(node).size();
        break;
      case NodeKind::kChars:
        if (!rules_.set(node).empty() && rules_.set(node).ranges().back().last > 0x7F)
          result = kWideClassStates;
        break;
      case NodeKind::kSequence:
      case NodeKind::kChoice:
        for (const NodeId child : node.children) result += size(child);
        break;
      case NodeKind::kRepeat:
        if (counts(node)) {
          result += node.max == kUnbounded ? size(node.children[0]) : 0;
        } else {
          result += size(node.children[0]) * copies(node);
        }
        break;
      case NodeKind::kRule:
      case NodeKind::kTokenId:
        break;
    }
    sizes_[id] = std::min<uint64_t>(result, uint64_t{1} << 32);
    return sizes_[id];
  }

  static uint64_t copies(const Node& node) {
    return node.max == kUnbounded ? uint64_t{node.min} + 1 : node.max;
  }
  bool counts(const Node& node) {
    const uint64_t repeated = node.max == kUnbounded ? node.min : node.max;
    return repeated > 1 && repeated_size(node.children[0]) * repeated > kUnrolledStatesMax;
  }
  // A rule that would be copied into a counted repetition (fits_counted) counts with what it says: written
  // out, the repetition would be calls alone, small but with masks for each of them.
  uint64_t repeated_size(NodeId id) {
    const Node& node = rules_.node(id);
    if (node.kind != NodeKind::kRule || calls(rules_.body(node.index))) return size(id);
    const uint64_t body = size(rules_.body(node.index));
    return body <= kCountedBodyStatesMax ? body : size(id);
  }
  // Calls rules, those of counted repetitions included.
  bool calls(NodeId id) {
    enum : uint8_t { kUnknown, kNo, kYes };
    if (calls_[id] == kUnknown) {
      const Node& node = rules_.node(id);
      const bool some = node.kind == NodeKind::kRule ||
                        std::any_of(node.children.begin(), node.children.end(),
                                    [this](NodeId child) { return calls(child); }) ||
                        (node.kind == NodeKind::kRepeat && counts(node));
      calls_[id] = some ? kYes : kNo;
    }
    return calls_[id] == kYes;
  }

  // --- What the root reaches; makes the counted rules on the way.

  Status find_reachable() {
    std::vector<RuleId> work = {rules_.root()};
    plan_.rules[rules_.root()].reachable = true;
    uint64_t states = 0;
    while (!work.empty()) {
      const RuleId caller = work.back();
      work.pop_back();
      // Before the walk below, which follows shared parts as often as they stand.
      states += size(plan_.rules[caller].body);
      if (states > kStatesMax) {
        return fail(Code::kResourceExhausted, "grammar: needs more than {} states (at rule \"{}\")",
                    kStatesMax, plan_.rules[caller].name);
      }
      calls_of_.resize(plan_.rules.size());
      walk_calls(caller, plan_.rules[caller].body, true);
      calls_of_.resize(plan_.rules.size());
      for (const Site& site : calls_of_[caller]) {
        if (plan_.rules[site.callee].reachable) continue;
        plan_.rules[site.callee].reachable = true;
        work.push_back(site.callee);
      }
    }
    return {};
  }

  void walk_calls(RuleId caller, NodeId id, bool last) {
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kRule:
        calls_of_[caller].push_back({caller, node.index, last});
        return;
      case NodeKind::kSequence:
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          walk_calls(caller, node.children[i], last && i + 1 == node.children.size());
        }
        return;
      case NodeKind::kChoice:
        for (const NodeId child : node.children) walk_calls(caller, child, last);
        return;
      case NodeKind::kRepeat:
        if (counts(node)) calls_of_[caller].push_back({caller, counted_rule(id), false});
        if (!counts(node) || node.max == kUnbounded)
          walk_calls(caller, node.children[0], last && node.max == 1);
        return;
      case NodeKind::kBytes:
      case NodeKind::kChars:
      case NodeKind::kToken:
      case NodeKind::kTokenId:
        return;
    }
  }

  // Equal repetitions of the same expression share a rule, and with it the cached masks.
  RuleId counted_rule(NodeId id) {
    const Node& node = rules_.node(id);
    const uint32_t max = node.max == kUnbounded ? node.min : node.max;
    const auto [found, is_new] = counted_by_body_.try_emplace({node.children[0], node.min, max},
                                                              static_cast<RuleId>(plan_.rules.size()));
    if (is_new) {
      plan_.rules.push_back({.name = fmt::format("repetition {{{},{}}}", node.min, max),
                             .body = node.children[0],
                             .counted = true,
                             .min = node.min,
                             .max = max});
    }
    plan_.counted.emplace(id, found->second);
    return found->second;
  }

  // --- Properties that spread from callee to caller.

  void find_callers() {
    callers_of_.resize(plan_.rules.size());
    for (const auto& sites : calls_of_) {
      for (const Site& site : sites) callers_of_[site.callee].push_back(site.caller);
    }
  }

  void spread(const std::function<bool(NodeId)>& holds, bool PlannedRule::* property) {
    std::deque<RuleId> work;
    std::vector<bool> waits(plan_.rules.size());
    const auto look_at = [&](RuleId rule) {
      if (!waits[rule] && !(plan_.rules[rule].*property)) work.push_back(rule);
      waits[rule] = true;
    };
    for (RuleId rule = 0; rule < plan_.rules.size(); ++rule) {
      if (plan_.rules[rule].reachable) look_at(rule);
    }
    while (!work.empty()) {
      const RuleId id = work.front();
      work.pop_front();
      waits[id] = false;
      PlannedRule& rule = plan_.rules[id];
      if (!holds(rule.body) && !(rule.counted && rule.min == 0)) continue;
      rule.*property = true;
      for (const RuleId caller : callers_of_[id]) look_at(caller);
    }
  }

  bool nullable(NodeId id) const {
    const Node& node = rules_.node(id);
    const auto child_is = [this](NodeId child) { return nullable(child); };
    switch (node.kind) {
      case NodeKind::kBytes:
        return rules_.text(node).empty();
      case NodeKind::kSequence:
        return std::all_of(node.children.begin(), node.children.end(), child_is);
      case NodeKind::kChoice:
        return std::any_of(node.children.begin(), node.children.end(), child_is);
      case NodeKind::kRepeat:
        return node.min == 0 || nullable(node.children[0]);
      case NodeKind::kRule:
        return plan_.rules[node.index].nullable;
      case NodeKind::kChars:
      case NodeKind::kToken:
      case NodeKind::kTokenId:
        return false;
    }
    return false;
  }

  bool productive(NodeId id) const {
    const Node& node = rules_.node(id);
    const auto child_is = [this](NodeId child) { return productive(child); };
    switch (node.kind) {
      case NodeKind::kChars:
        return !rules_.set(node).empty();
      case NodeKind::kSequence:
        return std::all_of(node.children.begin(), node.children.end(), child_is);
      case NodeKind::kChoice:
        return std::any_of(node.children.begin(), node.children.end(), child_is);
      case NodeKind::kRepeat:
        return node.min == 0 || productive(node.children[0]);
      case NodeKind::kRule:
        return plan_.rules[node.index].productive;
      case NodeKind::kBytes:
      case NodeKind::kToken:
      case NodeKind::kTokenId:
        return true;
    }
    return false;
  }

  // --- Left recursion: a rule that can come back to itself before any byte was read.

  Status check_left_recursion() {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(plan_.rules.size(), Mark::kNew);
    struct Level {
      RuleId rule = 0;
      std::vector<RuleId> first = {};  // still to be followed
    };
    std::vector<Level> path;
    const auto enter = [&](RuleId rule) {
      marks[rule] = Mark::kOpen;
      path.push_back({.rule = rule});
      first_calls(plan_.rules[rule].body, path.back().first);
    };
    for (RuleId begin = 0; begin < plan_.rules.size(); ++begin) {
      if (!plan_.rules[begin].reachable || marks[begin] != Mark::kNew) continue;
      enter(begin);
      while (!path.empty()) {
        if (path.back().first.empty()) {
          marks[path.back().rule] = Mark::kDone;
          path.pop_back();
          continue;
        }
        const RuleId next = path.back().first.back();
        path.back().first.pop_back();
        if (marks[next] == Mark::kNew)
          enter(next);
        else if (marks[next] == Mark::kOpen) {
          std::string cycle;
          const auto from =
              std::find_if(path.begin(), path.end(), [&](const Level& l) { return l.rule == next; });
          for (auto level = from; level != path.end(); ++level)
            cycle += plan_.rules[level->rule].name + " -> ";
          return fail(Code::kInvalidArgument,
                      "grammar: left recursion {}{}; put a part that is not empty in front, or use * or +",
                      cycle, plan_.rules[next].name);
        }
      }
    }
    return {};
  }

  void first_calls(NodeId id, std::vector<RuleId>& calls) const {
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kRule:
        calls.push_back(node.index);
        return;
      case NodeKind::kSequence:
        for (const NodeId child : node.children) {
          first_calls(child, calls);
          if (!nullable(child)) return;
        }
        return;
      case NodeKind::kChoice:
        for (const NodeId child : node.children) first_calls(child, calls);
        return;
      case NodeKind::kRepeat:
        first_calls(node.children[0], calls);
        return;
      case NodeKind::kBytes:
      case NodeKind::kChars:
      case NodeKind::kToken:
      case NodeKind::kTokenId:
        return;
    }
  }

  // --- Owners.

  void choose_owners() {
    for (RuleId id = 0; id < plan_.rules.size(); ++id) {
      PlannedRule& rule = plan_.rules[id];
      const bool leaf = rule.reachable && id != rules_.root() && !rule.counted && calls_of_[id].empty();
      rule.inlined = leaf && size(rule.body) <= kInlinedStatesMax;
      rule.fits_counted = leaf && size(rule.body) <= kCountedBodyStatesMax;
    }
    // A rule stands alone if it is called anywhere but in last place, or from two automata. Assume the best,
    // look what contradicts it, and repeat until nothing does; every round but the last frees a rule.
    std::vector<bool> alone(plan_.rules.size());
    alone[rules_.root()] = true;
    for (RuleId id = 0; id < plan_.rules.size(); ++id) {
      alone[id] = alone[id] || plan_.rules[id].counted;
      for (const Site& site : calls_of_[id]) {
        if (!site.last) alone[site.callee] = true;
      }
    }
    for (uint32_t round = 1; assign_owners(alone); ++round) {
      if (round == kOwnerRoundsMax) alone.assign(alone.size(), true);
    }
  }

  bool assign_owners(std::vector<bool>& alone) {
    for (PlannedRule& rule : plan_.rules) rule.owner = kNoRule;
    bool changed = false;
    std::vector<RuleId> work;
    for (RuleId id = 0; id < plan_.rules.size(); ++id) {
      if (!alone[id] || !plan_.rules[id].reachable) continue;
      plan_.rules[id].owner = id;
      work.push_back(id);
    }
    while (!work.empty()) {
      const RuleId caller = work.back();
      work.pop_back();
      for (const Site& site : calls_of_[caller]) {
        PlannedRule& callee = plan_.rules[site.callee];
        if (alone[site.callee] || callee.owner == plan_.rules[caller].owner) continue;
        if (callee.owner == kNoRule) {
          callee.owner = plan_.rules[caller].owner;
          work.push_back(site.callee);
        } else {
          alone[site.callee] = true;
          changed = true;
        }
      }
    }
    return changed;
  }

  const Rules& rules_;
  RulePlan plan_;
  std::vector<uint64_t> sizes_;  // 0: not computed yet
  std::vector<uint8_t> calls_;   // (nodes) what calls() knows
  std::map<std::tuple<NodeId, uint32_t, uint32_t>, RuleId> counted_by_body_;
  std::vector<std::vector<Site>> calls_of_;      // (rule)
  std::vector<std::vector<RuleId>> callers_of_;  // (rule)
};

}  // namespace

Result<RulePlan> plan_rules(const Rules& rules) { return Planner(rules).plan(); }

}  // namespace strata::grammar
