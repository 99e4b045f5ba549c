#pragma once
// JSON as expressions: what schemas, tools and "any object" are put together from.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/grammar/rules.h"

namespace strata::grammar {

// Where white space may stand in generated JSON. It is bounded: models given the choice fill pages with it.
enum class Whitespace : uint8_t {
  kNone,      // {"a":1,"b":[2,3]}
  kSingle,    // one space may follow : and ,
  kFlexible,  // anywhere between tokens: one space, or a line end and up to 16 spaces
};

enum class JsonStrings : uint8_t {
  kQuoted,
  // As they are, for values that stand on lines of their own: no quotes, no escapes, and without line ends
  // where characters are free. Only for strings: what contains them cannot be told apart without quotes.
  kBare,
};

class JsonRules {
 public:
  explicit JsonRules(Rules& rules, Whitespace whitespace, JsonStrings strings = JsonStrings::kQuoted)
      : rules_(rules), whitespace_(whitespace), strings_(strings) {}

  Rules& rules() { return rules_; }
  Whitespace whitespace() const { return whitespace_; }

  // Any value, object, array, string; numbers have up to 16 digits on each side of the point and a two-digit
  // exponent, so that readers with doubles can hold them.
  NodeId value();
  NodeId object();
  NodeId array();
  NodeId string();
  NodeId number();
  NodeId boolean();

  // One character of a string as it is written, with all escapes that JSON has (no lone surrogates).
  NodeId character();
  // Characters of the set, each written in one way.
  NodeId written(const CodePoints& set);
  NodeId quoted(NodeId inner);
  // The one string.
  NodeId literal(std::string_view text);
  // "name": value
  NodeId member(std::string_view name, NodeId value);
  NodeId member_of(NodeId quoted_name, NodeId value);

  NodeId open(char bracket);
  NodeId close(char bracket);
  NodeId comma();

  // first, then (comma next) min to max times.
  NodeId list(NodeId first, NodeId next, uint32_t min, uint32_t max);

 private:
  NodeId space();  // between tokens
  NodeId after(std::string_view token);
  NodeId rule_once(std::optional<RuleId>& rule, std::string_view name, NodeId (JsonRules::*body)());
  NodeId value_body();
  NodeId object_body();
  NodeId array_body();
  NodeId string_body();
  NodeId number_body();

  Rules& rules_;
  Whitespace whitespace_;
  JsonStrings strings_;
  std::optional<RuleId> value_, object_, array_, string_, number_;
};

// Text as a JSON string, with its quotes; only what must be escaped is.
std::string json_quoted(std::string_view text);

}  // namespace strata::grammar
