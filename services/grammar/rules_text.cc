// Rules as GBNF text; what parse_gbnf reads back matches the same texts.
//
// An expression is one node wherever it stands, but text has no such thing: a list of lists of lists, each
// written twice (the first element, the others), would double with every level. So what is long and stands in
// several places is written once, as a rule.
#include <iterator>
#include <map>
#include <set>

#include "services/grammar/limits.h"
#include "services/grammar/rules.h"
#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

// Shorter expressions are repeated: a call hides what follows from the cached masks.
constexpr std::size_t kRepeatedBytesMax = 2048;

// What stands around an expression decides whether it needs parentheses.
enum class Context : uint8_t { kChoice, kSequence, kRepeated };

class Writer {
 public:
  explicit Writer(const Rules& rules) : rules_(rules), seen_(rules.rule_count()) {}

  Result<std::string> write() {
    find_shared();
    // llama.cpp's readers, and ours, begin at the rule called root.
    if (rules_.name(rules_.root()) != "root")
      out_ += fmt::format("root ::= {}\n", rules_.name(rules_.root()));
    need(rules_.root());
    std::size_t written = 0, shared_written = 0;
    while (!too_long() && (written < order_.size() || shared_written < shared_order_.size())) {
      if (written < order_.size()) {
        const RuleId rule = order_[written++];
        definition(rules_.name(rule), rules_.body(rule));
      } else {
        const NodeId node = shared_order_[shared_written++];
        definition(shared_.at(node), node);
      }
    }
    if (too_long()) {
      return fail(Code::kResourceExhausted, "grammar: its text is longer than {} bytes", kSourceBytesMax);
    }
    return std::move(out_);
  }

 private:
  bool too_long() const { return out_.size() > kSourceBytesMax; }

  void definition(const std::string& name, NodeId body) {
    out_ += name + " ::= ";
    inside(body, Context::kChoice);
    out_ += '\n';
  }

  // Children come before their parents, so one pass sees how long everything is with its shared parts named.
  void find_shared() {
    std::vector<uint32_t> uses(rules_.node_count());
    for (NodeId id = 0; id < rules_.node_count(); ++id) {
      for (const NodeId child : rules_.node(id).children) ++uses[child];
    }
    for (RuleId rule = 0; rule < rules_.rule_count(); ++rule) {
      names_.insert(rules_.name(rule));
      if (rules_.body(rule) != kNoNode) ++uses[rules_.body(rule)];
    }
    std::vector<std::size_t> bytes(rules_.node_count());
    for (NodeId id = 0; id < rules_.node_count(); ++id) {
      const Node& node = rules_.node(id);
      bytes[id] = length_alone(node);
      for (const NodeId child : node.children) bytes[id] += bytes[child] + 3;
      if (uses[id] < 2 || bytes[id] <= kRepeatedBytesMax || node.kind == NodeKind::kRule) continue;
      shared_.emplace(id, unused_name());
      bytes[id] = shared_.at(id).size();
    }
  }

  std::size_t length_alone(const Node& node) const {
    switch (node.kind) {
      case NodeKind::kBytes:
      case NodeKind::kToken:
        return rules_.text(node).size() + 2;
      case NodeKind::kChars:
        return rules_.set(node).ranges().size() * 8;
      case NodeKind::kRule:
        return rules_.name(node.index).size();
      default:
        return 8;
    }
  }

  std::string unused_name() {
    std::string name;
    do {
      name = fmt::format("shared-{}", ++last_name_);
    } while (names_.contains(name));
    return name;
  }

  void need(RuleId rule) {
    if (seen_[rule]) return;
    seen_[rule] = true;
    order_.push_back(rule);
  }

  void list(const Node& node, std::string_view separator, Context inner, bool parentheses) {
    if (parentheses) out_ += '(';
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      if (i != 0) out_ += separator;
      expression(node.children[i], inner);
    }
    if (parentheses) out_ += ')';
  }

  void expression(NodeId id, Context context) {
    const auto shared = shared_.find(id);
    if (shared == shared_.end()) return inside(id, context);
    if (shared_needed_.insert(id).second) shared_order_.push_back(id);
    out_ += shared->second;
  }

  void inside(NodeId id, Context context) {
    if (too_long()) return;
    const Node& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kBytes:
        literal(rules_.text(node));
        return;
      case NodeKind::kChars:
        char_class(rules_.set(node));
        return;
      case NodeKind::kSequence:
        if (node.children.empty()) {
          out_ += "\"\"";
        } else {
          list(node, " ", Context::kSequence, context == Context::kRepeated);
        }
        return;
      case NodeKind::kChoice:
        if (node.children.empty()) {
          out_ += "[]";
        } else {
          list(node, " | ", Context::kChoice, context != Context::kChoice);
        }
        return;
      case NodeKind::kRepeat:
        repeat(node, context);
        return;
      case NodeKind::kRule:
        need(node.index);
        out_ += rules_.name(node.index);
        return;
      case NodeKind::kToken:
        out_ += rules_.text(node);
        return;
      case NodeKind::kTokenId:
        out_ += fmt::format("<[{}]>", node.index);
        return;
    }
  }

  void repeat(const Node& node, Context context) {
    // "x{2}{3}" would read as a repeated repetition, which is what is meant, but few readers take it.
    const bool parentheses = context == Context::kRepeated;
    if (parentheses) out_ += '(';
    expression(node.children[0], Context::kRepeated);
    if (node.max == kUnbounded) {
      out_ += node.min == 0 ? "*" : node.min == 1 ? "+" : fmt::format("{{{},}}", node.min);
    } else if (node.min == 0 && node.max == 1) {
      out_ += '?';
    } else {
      out_ += node.min == node.max ? fmt::format("{{{}}}", node.min)
                                   : fmt::format("{{{},{}}}", node.min, node.max);
    }
    if (parentheses) out_ += ')';
  }

  void character(char32_t value, std::string_view special) {
    if (value == '\n') {
      out_ += "\\n";
    } else if (value == '\r') {
      out_ += "\\r";
    } else if (value == '\t') {
      out_ += "\\t";
    } else if (value < 0x20 || value == 0x7F) {
      out_ += fmt::format("\\x{:02X}", static_cast<uint32_t>(value));
    } else if (value < 0x7F) {
      if (special.find(static_cast<char>(value)) != std::string_view::npos) out_ += '\\';
      out_ += static_cast<char>(value);
    } else if (value <= 0xFFFF) {
      out_ += fmt::format("\\u{:04X}", static_cast<uint32_t>(value));
    } else {
      out_ += fmt::format("\\U{:08X}", static_cast<uint32_t>(value));
    }
  }

  void literal(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const tokenizer::Utf8Step step = tokenizer::utf8_step(text);
      character(step.value, "\"\\");
      text.remove_prefix(step.bytes);
    }
    out_ += '"';
  }

  void char_class(const CodePoints& set) {
    // A class that holds the last character was most likely written as a complement, and reads best so.
    const bool inverted = set.contains(kLastCodePoint);
    const CodePoints shown = inverted ? set.complement() : set;
    if (inverted && shown.empty()) {
      out_ += '.';
      return;
    }
    out_ += inverted ? "[^" : "[";
    for (const CodeRange& range : shown.ranges()) {
      character(range.first, "]\\^-[");
      if (range.last == range.first) continue;
      if (range.last > range.first + 1) out_ += '-';
      character(range.last, "]\\^-[");
    }
    out_ += ']';
  }

  const Rules& rules_;
  std::vector<bool> seen_;
  std::vector<RuleId> order_;
  std::set<std::string, std::less<>> names_;
  uint32_t last_name_ = 0;
  std::map<NodeId, std::string> shared_;  // their names
  std::set<NodeId> shared_needed_;
  std::vector<NodeId> shared_order_;
  std::string out_;
};

}  // namespace

Result<std::string> Rules::to_gbnf() const { return Writer(*this).write(); }

}  // namespace strata::grammar
