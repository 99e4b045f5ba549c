#include "services/grammar/json_rules.h"

#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

constexpr uint32_t kDigitsMax = 16;
constexpr uint32_t kIndentMax = 16;

// What must not stand in a JSON string as it is.
const CodePoints& escaped() {
  static const CodePoints kSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return kSet;
}

std::string escape_of(char32_t value) {
  switch (value) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(value));
  }
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto value = static_cast<uint8_t>(c);
    if (value < 0x80 && escaped().contains(value)) {
      result += escape_of(value);
    } else {
      result += c;
    }
  }
  return result += '"';
}

NodeId JsonRules::rule_once(std::optional<RuleId>& rule, std::string_view name, NodeId (JsonRules::*body)()) {
  if (!rule) {
    rule = rules_.add_rule(name);  // known before its body is made: values nest
    rules_.define(*rule, (this->*body)());
  }
  return rules_.reference(*rule);
}

NodeId JsonRules::value() { return rule_once(value_, "value", &JsonRules::value_body); }
NodeId JsonRules::object() { return rule_once(object_, "object", &JsonRules::object_body); }
NodeId JsonRules::array() { return rule_once(array_, "array", &JsonRules::array_body); }
NodeId JsonRules::string() { return rule_once(string_, "string", &JsonRules::string_body); }
NodeId JsonRules::number() { return rule_once(number_, "number", &JsonRules::number_body); }

NodeId JsonRules::boolean() { return rules_.choice({rules_.bytes("true"), rules_.bytes("false")}); }

NodeId JsonRules::value_body() {
  return rules_.choice({object(), array(), string(), number(), boolean(), rules_.bytes("null")});
}

NodeId JsonRules::object_body() {
  const NodeId one = member_of(string(), value());
  return rules_.sequence({open('{'), rules_.optional(list(one, one, 0, kUnbounded)), close('}')});
}

NodeId JsonRules::array_body() {
  return rules_.sequence({open('['), rules_.optional(list(value(), value(), 0, kUnbounded)), close(']')});
}

NodeId JsonRules::string_body() { return quoted(rules_.repeat(character(), 0, kUnbounded)); }

NodeId JsonRules::number_body() {
  const NodeId digit = rules_.chars(CodePoints({{'0', '9'}}));
  const NodeId sign = rules_.optional(rules_.bytes("-"));
  const NodeId whole = rules_.choice(
      {rules_.bytes("0"),
       rules_.sequence({rules_.chars(CodePoints({{'1', '9'}})), rules_.repeat(digit, 0, kDigitsMax - 1)})});
  const NodeId fraction = rules_.sequence({rules_.bytes("."), rules_.repeat(digit, 1, kDigitsMax)});
  const NodeId exponent = rules_.sequence(
      {rules_.chars(CodePoints({{'e', 'e'}, {'E', 'E'}})),
       rules_.optional(rules_.chars(CodePoints({{'+', '+'}, {'-', '-'}}))), rules_.repeat(digit, 1, 2)});
  return rules_.sequence({sign, whole, rules_.optional(fraction), rules_.optional(exponent)});
}

NodeId JsonRules::character() {
  if (strings_ == JsonStrings::kBare) return written(CodePoints::all());
  const auto set = [this](std::initializer_list<CodeRange> ranges) {
    return rules_.chars(CodePoints(ranges));
  };
  const NodeId hex = set({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const NodeId d = set({{'d', 'd'}, {'D', 'D'}});
  const NodeId two = rules_.repeat(hex, 2, 2);
  // \uD800 to \uDFFF are halves of a character and make sense in pairs only.
  const NodeId unit =
      rules_.choice({rules_.sequence({set({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}),
                                      rules_.repeat(hex, 3, 3)}),
                     rules_.sequence({d, set({{'0', '7'}}), two})});
  const NodeId pair = rules_.sequence({d, set({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), two, rules_.bytes("\\u"),
                                       d, set({{'c', 'f'}, {'C', 'F'}}), two});
  const NodeId letter =
      set({{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}});
  const NodeId escape = rules_.sequence(
      {rules_.bytes("\\"),
       rules_.choice({letter, rules_.sequence({rules_.bytes("u"), rules_.choice({unit, pair})})})});
  return rules_.choice({rules_.chars(escaped().complement()), escape});
}

NodeId JsonRules::written(const CodePoints& set) {
  if (strings_ == JsonStrings::kBare) return rules_.chars(set.minus(CodePoints({{'\n', '\n'}})));
  std::vector<NodeId> choices;
  const CodePoints plain = set.minus(escaped());
  if (!plain.empty()) choices.push_back(rules_.chars(plain));
  const CodePoints others = set.intersection(escaped());
  for (const CodeRange& range : others.ranges()) {
    for (char32_t value = range.first; value <= range.last; ++value)
      choices.push_back(rules_.bytes(escape_of(value)));
  }
  return rules_.choice(std::move(choices));
}

NodeId JsonRules::literal(std::string_view text) {
  return rules_.bytes(strings_ == JsonStrings::kBare ? std::string(text) : json_quoted(text));
}

NodeId JsonRules::quoted(NodeId inner) {
  if (strings_ == JsonStrings::kBare) return inner;
  return rules_.sequence({rules_.bytes("\""), inner, rules_.bytes("\"")});
}

NodeId JsonRules::space() {
  const NodeId indented =
      rules_.sequence({rules_.bytes("\n"), rules_.repeat(rules_.bytes(" "), 0, kIndentMax)});
  return rules_.optional(rules_.choice({rules_.bytes(" "), indented}));
}

NodeId JsonRules::after(std::string_view token) {
  if (whitespace_ == Whitespace::kNone) return rules_.bytes(token);
  const NodeId behind = whitespace_ == Whitespace::kSingle ? rules_.optional(rules_.bytes(" ")) : space();
  return rules_.sequence({rules_.bytes(token), behind});
}

NodeId JsonRules::open(char bracket) {
  const NodeId token = rules_.bytes(std::string_view(&bracket, 1));
  return whitespace_ == Whitespace::kFlexible ? rules_.sequence({token, space()}) : token;
}

NodeId JsonRules::close(char bracket) {
  const NodeId token = rules_.bytes(std::string_view(&bracket, 1));
  return whitespace_ == Whitespace::kFlexible ? rules_.sequence({space(), token}) : token;
}

NodeId JsonRules::comma() { return after(","); }

NodeId JsonRules::member(std::string_view name, NodeId value) {
  return member_of(rules_.bytes(json_quoted(name)), value);
}

NodeId JsonRules::member_of(NodeId quoted_name, NodeId value) {
  return rules_.sequence({quoted_name, after(":"), value});
}

NodeId JsonRules::list(NodeId first, NodeId next, uint32_t min, uint32_t max) {
  return rules_.sequence({first, rules_.repeat(rules_.sequence({comma(), next}), min, max)});
}

}  // namespace strata::grammar
