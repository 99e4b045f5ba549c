#include "services/grammar/rules.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::grammar {

RuleId Rules::rule(std::string_view name) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  const auto id = static_cast<RuleId>(rules_.size());
  rules_.push_back({.name = std::string(name)});
  by_name_.emplace(name, id);
  return id;
}

RuleId Rules::add_rule(std::string_view hint) {
  std::string name;
  for (const char c : hint) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    name += word ? c : '-';
  }
  if (name.empty() || name[0] == '-') name.insert(0, "rule");
  std::string tried = name;
  uint32_t& number = names_tried_[name];
  while (by_name_.contains(tried)) tried = fmt::format("{}-{}", name, ++number + 1);
  return rule(tried);
}

RuleId Rules::define_new(std::string_view hint, NodeId body) {
  const RuleId id = add_rule(hint);
  define(id, body);
  return id;
}

NodeId Rules::add(Node node) {
  const auto [found, is_new] = by_node_.try_emplace(node, static_cast<NodeId>(nodes_.size()));
  if (!is_new) return found->second;
  uint32_t depth = 1;
  for (const NodeId child : node.children) {
    CHECK(child < nodes_.size(), "child {} of {} nodes", child, nodes_.size());
    depth = std::max(depth, depths_[child] + 1);
  }
  nodes_.push_back(std::move(node));
  depths_.push_back(depth);
  return found->second;
}

uint32_t Rules::text_index(std::string_view text) {
  if (const auto found = by_text_.find(text); found != by_text_.end()) return found->second;
  const auto index = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(text);
  by_text_.emplace(text, index);
  return index;
}

NodeId Rules::bytes(std::string_view text) {
  return add({.kind = NodeKind::kBytes, .index = text_index(text)});
}

NodeId Rules::chars(CodePoints set) {
  const auto [found, is_new] = by_set_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(std::move(set));
  return add({.kind = NodeKind::kChars, .index = found->second});
}

NodeId Rules::sequence(std::vector<NodeId> children) {
  if (children.size() == 1) return children[0];
  return add({.kind = NodeKind::kSequence, .children = std::move(children)});
}

NodeId Rules::choice(std::vector<NodeId> children) {
  if (children.size() == 1) return children[0];
  return add({.kind = NodeKind::kChoice, .children = std::move(children)});
}

NodeId Rules::repeat(NodeId child, uint32_t min, uint32_t max) {
  CHECK(min <= max, "repetition {{{},{}}}", min, max);
  if (min == 1 && max == 1) return child;
  return add({.kind = NodeKind::kRepeat, .min = min, .max = max, .children = {child}});
}

NodeId Rules::reference(RuleId rule) {
  CHECK(rule < rules_.size(), "rule {} of {}", rule, rules_.size());
  return add({.kind = NodeKind::kRule, .index = rule});
}

NodeId Rules::token(std::string_view spelling) {
  return add({.kind = NodeKind::kToken, .index = text_index(spelling)});
}

NodeId Rules::token_id(int32_t id) {
  return add({.kind = NodeKind::kTokenId, .index = static_cast<uint32_t>(id)});
}

NodeId Rules::add_rules_of(const Rules& other) {
  std::vector<RuleId> rule_ids;
  for (const Rule& rule : other.rules_) rule_ids.push_back(add_rule(rule.name));
  std::vector<NodeId> node_ids;
  for (const Node& node : other.nodes_) {
    Node copy = node;
    for (NodeId& child : copy.children) child = node_ids[child];
    switch (node.kind) {
      case NodeKind::kBytes:
      case NodeKind::kToken:
        copy.index = text_index(other.text(node));
        break;
      case NodeKind::kRule:
        copy.index = rule_ids[node.index];
        break;
      case NodeKind::kChars:
        node_ids.push_back(chars(other.set(node)));
        continue;
      case NodeKind::kSequence:
      case NodeKind::kChoice:
      case NodeKind::kRepeat:
      case NodeKind::kTokenId:
        break;
    }
    node_ids.push_back(add(std::move(copy)));
  }
  for (std::size_t i = 0; i < rule_ids.size(); ++i) {
    const NodeId body = other.rules_[i].body;
    if (body != kNoNode) define(rule_ids[i], node_ids[body]);
  }
  return reference(rule_ids[other.root_]);
}

}  // namespace strata::grammar
