#pragma once
// A grammar as rules over expressions: what every front end (GBNF text, JSON schema, tools) makes and the
// compiler takes. The text form is GBNF (to_gbnf, parse_gbnf): a front end's result can be sent to another
// process as text.
//
// Expressions are built bottom-up; equal ones are one node. Strings are bytes, sets are characters.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/code_points.h"

namespace strata::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();
inline constexpr NodeId kNoNode = std::numeric_limits<NodeId>::max();

enum class NodeKind : uint8_t {
  kBytes,     // text(); may be empty
  kChars,     // one character out of chars()
  kSequence,  // children in order
  kChoice,    // one of the children; none: matches nothing
  kRepeat,    // children[0], min to max times
  kRule,      // what rule `index` matches
  kToken,     // the special token spelled text(), or its spelling where the vocabulary has no such token
  kTokenId,   // the token of id `index`
};

struct Node {
  NodeKind kind = NodeKind::kBytes;
  uint32_t index = 0;  // of the text or the set; the rule; the token id
  uint32_t min = 0, max = 0;
  std::vector<NodeId> children = {};
  auto operator<=>(const Node&) const = default;
};

class Rules {
 public:
  // An unused name is made up from `hint`: "item", "item-2", ...
  RuleId add_rule(std::string_view hint);
  // The rule of exactly this name, made if there is none yet.
  RuleId rule(std::string_view name);
  void define(RuleId rule, NodeId body) { rules_[rule].body = body; }
  // add_rule and define in one.
  RuleId define_new(std::string_view hint, NodeId body);
  void set_root(RuleId rule) { root_ = rule; }

  NodeId bytes(std::string_view text);
  NodeId empty() { return bytes(""); }
  NodeId chars(CodePoints set);
  NodeId sequence(std::vector<NodeId> children);
  NodeId choice(std::vector<NodeId> children);
  NodeId repeat(NodeId child, uint32_t min, uint32_t max);
  NodeId optional(NodeId child) { return repeat(child, 0, 1); }
  NodeId reference(RuleId rule);
  NodeId token(std::string_view spelling);
  NodeId token_id(int32_t id);

  uint32_t rule_count() const { return static_cast<uint32_t>(rules_.size()); }
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size()); }
  RuleId root() const { return root_; }
  const std::string& name(RuleId rule) const { return rules_[rule].name; }
  NodeId body(RuleId rule) const { return rules_[rule].body; }  // kNoNode: not defined
  const Node& node(NodeId id) const { return nodes_[id]; }
  const std::string& text(const Node& node) const { return texts_[node.index]; }
  const CodePoints& set(const Node& node) const { return sets_[node.index]; }
  // Levels below and including the node.
  uint32_t depth(NodeId id) const { return depths_[id]; }

  // All rules of `other`, under names of their own here; returns what stands for its root.
  NodeId add_rules_of(const Rules& other);

  // Rules that the root does not reach are left out. Long expressions that stand in several places become
  // rules, so that the text does not grow beyond what is in here. Errors: kResourceExhausted beyond
  // kSourceBytesMax, for nobody could read it back.
  Result<std::string> to_gbnf() const;

 private:
  struct Rule {
    std::string name;
    NodeId body = kNoNode;
  };
  NodeId add(Node node);

  std::vector<Rule> rules_;
  std::map<std::string, RuleId, std::less<>> by_name_;
  std::map<std::string, uint32_t, std::less<>>
      names_tried_;  // of a hint, so that many equal hints stay cheap
  uint32_t text_index(std::string_view text);

  std::vector<Node> nodes_;
  std::map<Node, NodeId> by_node_;
  std::vector<uint32_t> depths_;
  std::vector<std::string> texts_;
  std::map<std::string, uint32_t, std::less<>> by_text_;
  std::vector<CodePoints> sets_;
  std::map<CodePoints, uint32_t> by_set_;
  RuleId root_ = 0;
};

}  // namespace strata::grammar
