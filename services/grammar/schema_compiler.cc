#include "services/grammar/schema_compiler.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <charconv>
#include <set>

#include "services/base/check.h"
#include "services/grammar/json_schema.h"
#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

using boost::json::array;
using boost::json::kind;
using boost::json::object;
using boost::json::value;

// Says something about the schema and nothing about the values.
constexpr auto kAnnotations = std::to_array<std::string_view>(
    {"title", "description", "default", "example", "examples", "$schema", "$id", "$comment", "$defs",
     "definitions", "deprecated", "readOnly", "writeOnly", "externalDocs", "discriminator", "xml"});

constexpr auto kObjectKeywords = std::to_array<std::string_view>(
    {"properties", "required", "additionalProperties", "minProperties", "maxProperties"});
constexpr auto kArrayKeywords = std::to_array<std::string_view>(
    {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"});
constexpr auto kStringKeywords =
    std::to_array<std::string_view>({"minLength", "maxLength", "pattern", "format"});
constexpr auto kNumberKeywords = std::to_array<std::string_view>(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
constexpr auto kOtherKeywords =
    std::to_array<std::string_view>({"type", "nullable", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"});
constexpr auto kTypes =
    std::to_array<std::string_view>({"object", "array", "string", "number", "integer", "boolean", "null"});

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_annotation(std::string_view keyword) {
  return holds(kAnnotations, keyword) || keyword.starts_with("x-");
}

template <std::size_t N>
bool has_any(const object& schema, const std::array<std::string_view, N>& keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](std::string_view word) { return schema.contains(word); });
}

std::string_view text(boost::json::string_view view) { return {view.data(), view.size()}; }

std::string_view type_name(const value& v) {
  switch (v.kind()) {
    case kind::object:
      return "object";
    case kind::array:
      return "array";
    case kind::string:
      return "string";
    case kind::bool_:
      return "boolean";
    case kind::null:
      return "null";
    case kind::int64:
    case kind::uint64:
      return "integer";
    case kind::double_:
      break;
  }
  return "number";
}

// Nothing but annotations beside the keyword.
bool stands_alone(const object& schema, std::string_view keyword) {
  return std::all_of(schema.begin(), schema.end(), [&](const auto& member) {
    return text(member.key()) == keyword || is_annotation(text(member.key()));
  });
}

void write_json(const value& v, std::string& out) {
  switch (v.kind()) {
    case kind::object: {
      out += '{';
      for (const auto& member : v.get_object()) {
        if (out.back() != '{') out += ',';
        out += json_quoted(text(member.key()));
        out += ':';
        write_json(member.value(), out);
      }
      out += '}';
      return;
    }
    case kind::array: {
      out += '[';
      for (const value& element : v.get_array()) {
        if (out.back() != '[') out += ',';
        write_json(element, out);
      }
      out += ']';
      return;
    }
    case kind::string:
      out += json_quoted(text(v.get_string()));
      return;
    case kind::bool_:
      out += v.get_bool() ? "true" : "false";
      return;
    case kind::null:
      out += "null";
      return;
    case kind::int64:
      out += std::to_string(v.get_int64());
      return;
    case kind::uint64:
      out += std::to_string(v.get_uint64());
      return;
    case kind::double_: {
      std::array<char, 32> digits;
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), v.get_double());
      out.append(digits.data(), end.ptr);
      return;
    }
  }
}

}  // namespace

std::string json_text(const value& v) {
  std::string out;
  write_json(v, out);
  return out;
}

std::string pointer_token(std::string_view name) {
  std::string token;
  for (const char c : name) token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

Result<NodeId> SchemaCompiler::schema(const value& schema, const std::string& at) {
  if (++schemas_ > kSchemasMax || rules_.node_count() > kNodesMax) {
    return fail(Code::kResourceExhausted, "schema at {}: the schema is too large", at);
  }
  if (schema.is_bool()) return schema.get_bool() ? json_.value() : rules_.choice({});
  if (!schema.is_object()) return error(at, "a schema is an object, true or false");
  if (nesting_ == kNestingMax) {
    return fail(Code::kResourceExhausted, "schema at {}: more than {} schemas inside each other", at,
                kNestingMax);
  }
  ++nesting_;
  Result<NodeId> result = object_schema(schema.get_object(), at);
  --nesting_;
  return result;
}

Result<NodeId> SchemaCompiler::object_schema(const object& schema, const std::string& at) {
  TRY_OK(check_keywords(schema, at));
  if (const value* target = schema.if_contains("$ref"); target != nullptr && stands_alone(schema, "$ref")) {
    if (!target->is_string()) return error(at, "\"$ref\" must be a string");
    return reference(text(target->get_string()), at);
  }
  if (schema.contains("$ref")) {
    TRY(object whole, expanded(schema, at));
    return this->schema(value(std::move(whole)), at);
  }
  if (schema.contains("allOf")) return all_of(schema, at);
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return any_of(schema, keyword, at);
  }
  if (schema.contains("const") || schema.contains("enum")) return values(schema, at);
  TRY(const std::vector<std::string> types, types_of(schema, at));
  if (types.empty()) return json_.value();
  std::vector<NodeId> choices;
  for (const std::string& type : types) {
    TRY(const NodeId choice, of_type(type, schema, at));
    choices.push_back(choice);
  }
  return rules_.choice(std::move(choices));
}

Status SchemaCompiler::check_keywords(const object& schema, const std::string& at) {
  for (const auto& member : schema) {
    const std::string_view word = text(member.key());
    if (is_annotation(word) || holds(kObjectKeywords, word) || holds(kArrayKeywords, word) ||
        holds(kStringKeywords, word) || holds(kNumberKeywords, word) || holds(kOtherKeywords, word)) {
      continue;
    }
    return error(at, "\"{}\" is not supported", word);
  }
  return {};
}

// --- References.

Result<const value*> SchemaCompiler::resolve(std::string_view target, const std::string& at) const {
  const auto missing = [&] {
    return error(at, "\"$ref\" leads to \"{}\", which is not in this schema", target);
  };
  if (!target.starts_with('#')) return missing();
  std::string_view rest = target.substr(1);
  const value* here = &root_;
  while (!rest.empty()) {
    if (rest[0] != '/') return missing();
    rest.remove_prefix(1);
    std::string token;
    for (; !rest.empty() && rest[0] != '/'; rest.remove_prefix(1)) {
      if (rest.starts_with("~0") || rest.starts_with("~1")) {
        token += rest[1] == '0' ? '~' : '/';
        rest.remove_prefix(1);
      } else if (uint8_t byte = 0;
                 rest[0] == '%' && rest.size() >= 3 &&
                 std::from_chars(rest.data() + 1, rest.data() + 3, byte, 16).ptr == rest.data() + 3) {
        token += static_cast<char>(byte);
        rest.remove_prefix(2);
      } else {
        token += rest[0];
      }
    }
    if (here->is_object()) {
      here = here->get_object().if_contains(token);
    } else if (here->is_array()) {
      std::size_t index = 0;
      const auto read = std::from_chars(token.data(), token.data() + token.size(), index);
      const bool number = read.ec == std::errc() && read.ptr == token.data() + token.size();
      here = number ? here->get_array().if_contains(index) : nullptr;
    } else {
      here = nullptr;
    }
    if (here == nullptr) return missing();
  }
  return here;
}

Result<NodeId> SchemaCompiler::reference(std::string_view target, const std::string& at) {
  if (const auto known = referenced_.find(target); known != referenced_.end())
    return rules_.reference(known->second);
  TRY(const value* schema_there, resolve(target, at));
  const RuleId rule = rules_.add_rule(target.substr(target.rfind('/') + 1));
  // Known before it is made, so that a schema may refer to itself.
  referenced_.emplace(target, rule);
  TRY(const NodeId body, schema(*schema_there, std::string(target)));
  rules_.define(rule, body);
  return rules_.reference(rule);
}

// --- Combinations.

Result<NodeId> SchemaCompiler::all_of(const object& schema, const std::string& at) {
  const value& list = schema.at("allOf");
  if (!list.is_array() || list.get_array().empty()) return error(at, "\"allOf\" must be a list of schemas");
  object whole = schema;
  whole.erase("allOf");
  for (std::size_t i = 0; i < list.get_array().size(); ++i) {
    const value& part = list.get_array()[i];
    const std::string part_at = fmt::format("{}/allOf/{}", at, i);
    if (part.is_bool() && part.get_bool()) continue;
    if (!part.is_object()) return error(part_at, "cannot be merged: not an object");
    TRY_OK(check_keywords(part.get_object(), part_at));
    TRY(const object expanded_part, expanded(part.get_object(), part_at));
    TRY(whole, merged(whole, expanded_part, part_at));
    if (is_impossible(whole)) return error(part_at, "\"type\" contradicts what it is combined with");
  }
  // The parts may bring an allOf of their own: one level deeper each time.
  return this->schema(value(std::move(whole)), at);
}

Result<NodeId> SchemaCompiler::any_of(const object& schema, std::string_view keyword, const std::string& at) {
  const value& list = schema.at(keyword);
  if (!list.is_array() || list.get_array().empty())
    return error(at, "\"{}\" must be a list of schemas", keyword);
  object rest = schema;
  rest.erase(keyword);
  const bool alone = stands_alone(rest, "");
  std::vector<NodeId> choices;
  for (std::size_t i = 0; i < list.get_array().size(); ++i) {
    const value& part = list.get_array()[i];
    const std::string part_at = fmt::format("{}/{}/{}", at, keyword, i);
    if (alone || part.is_bool()) {
      TRY(const NodeId choice,
          this->schema(part.is_bool() && part.get_bool() && !alone ? value(rest) : part, part_at));
      choices.push_back(choice);
      continue;
    }
    if (!part.is_object()) return error(part_at, "a schema is an object, true or false");
    TRY_OK(check_keywords(part.get_object(), part_at));
    TRY(const object expanded_part, expanded(part.get_object(), part_at));
    TRY(object whole, merged(rest, expanded_part, part_at));
    if (is_impossible(whole)) continue;
    TRY(const NodeId choice, this->schema(value(std::move(whole)), part_at));
    choices.push_back(choice);
  }
  if (choices.empty()) return error(at, "no alternative of \"{}\" fits what stands beside it", keyword);
  return rules_.choice(std::move(choices));
}

// --- Values and types.

Result<NodeId> SchemaCompiler::values(const object& schema, const std::string& at) {
  array allowed;
  if (const value* list = schema.if_contains("enum")) {
    if (!list->is_array() || list->get_array().empty()) return error(at, "\"enum\" must be a list of values");
    allowed = list->get_array();
  }
  if (const value* only = schema.if_contains("const")) {
    if (schema.contains("enum") && std::find(allowed.begin(), allowed.end(), *only) == allowed.end()) {
      return error(at, "\"const\" is not one of \"enum\"");
    }
    allowed = {*only};
  }
  for (const auto& member : schema) {
    const std::string_view word = text(member.key());
    if (is_annotation(word) || holds(kOtherKeywords, word)) continue;
    return error(at, "\"{}\" beside \"enum\" or \"const\" is not supported", word);
  }
  TRY(const std::vector<std::string> types, types_of(schema, at));
  std::vector<NodeId> choices;
  for (const value& v : allowed) {
    const std::string_view type = type_name(v);
    const bool fits =
        types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& wanted) {
          return wanted == type || (wanted == "number" && type == "integer");
        });
    if (fits)
      choices.push_back(v.is_string() ? json_.literal(text(v.get_string())) : rules_.bytes(json_text(v)));
  }
  if (choices.empty()) return error(at, "no value of \"enum\" or \"const\" has the given type");
  return rules_.choice(std::move(choices));
}

Result<std::vector<std::string>> SchemaCompiler::types_of(const object& schema, const std::string& at) const {
  std::vector<std::string> types;
  const auto add = [&](const value& type) {
    if (!type.is_string() || !holds(kTypes, text(type.get_string()))) return false;
    const std::string_view name = text(type.get_string());
    if (std::find(types.begin(), types.end(), name) == types.end()) types.emplace_back(name);
    return true;
  };
  if (const value* type = schema.if_contains("type")) {
    const bool list = type->is_array() && !type->get_array().empty();
    const bool good =
        list ? std::all_of(type->get_array().begin(), type->get_array().end(), add) : add(*type);
    if (!good)
      return error(at,
                   "\"type\" must be one or more of object, array, string, number, integer, boolean, null");
  } else {
    // What a keyword says holds for values of its type only; a schema that has it means that type.
    if (has_any(schema, kObjectKeywords)) types.emplace_back("object");
    if (has_any(schema, kArrayKeywords)) types.emplace_back("array");
    if (has_any(schema, kStringKeywords)) types.emplace_back("string");
    if (has_any(schema, kNumberKeywords)) types.emplace_back("number");
  }
  // Every integer is a number.
  if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
  if (const value* nullable = schema.if_contains("nullable")) {
    if (!nullable->is_bool()) return error(at, "\"nullable\" must be true or false");
    if (nullable->get_bool() && !types.empty()) add("null");
  }
  return types;
}

Result<NodeId> SchemaCompiler::of_type(std::string_view type, const object& schema, const std::string& at) {
  if (type == "object") return object_value(schema, at);
  if (type == "array") return array_value(schema, at);
  if (type == "string") return string_value(schema, at);
  if (type == "integer") return integer_value(schema, at);
  if (type == "number") return number_value(schema, at);
  return type == "boolean" ? json_.boolean() : rules_.bytes("null");
}

Result<std::optional<uint64_t>> SchemaCompiler::count(const object& schema, std::string_view keyword,
                                                      const std::string& at) {
  const value* number = schema.if_contains(keyword);
  if (number == nullptr) return std::nullopt;
  if (number->is_int64() && number->get_int64() >= 0) return static_cast<uint64_t>(number->get_int64());
  if (number->is_uint64()) return number->get_uint64();
  if (number->is_double() && number->get_double() >= 0 && number->get_double() < 1e15 &&
      number->get_double() == static_cast<double>(static_cast<uint64_t>(number->get_double()))) {
    return static_cast<uint64_t>(number->get_double());
  }
  return error(at, "\"{}\" must be a whole number that is not negative", keyword);
}

// --- The front of it all.

Result<value> parse_schema(std::string_view schema) {
  if (schema.size() > kSourceBytesMax) {
    return fail(Code::kResourceExhausted, "schema: {} bytes, at most {} are read", schema.size(),
                kSourceBytesMax);
  }
  boost::json::parse_options options;
  options.max_depth = 2 * kNestingMax;  // a level of schemas takes two of JSON
  boost::json::error_code code;
  value root = boost::json::parse(boost::json::string_view(schema.data(), schema.size()), code, {}, options);
  if (code == boost::json::error::too_deep) {
    return fail(Code::kResourceExhausted, "schema: nested more than {} levels deep", 2 * kNestingMax);
  }
  if (code) return fail(Code::kInvalidArgument, "schema: not JSON: {}", code.message());
  return root;
}

Result<Rules> rules_of_schema(std::string_view schema, Whitespace whitespace) {
  Rules rules;
  const RuleId root = rules.add_rule("root");
  JsonRules json(rules, whitespace);
  TRY(const value parsed, parse_schema(schema));
  TRY(const NodeId body, SchemaCompiler(json, parsed).schema(parsed, "#"));
  rules.define(root, body);
  rules.set_root(root);
  return rules;
}

Rules rules_of_any_object(Whitespace whitespace) {
  Rules rules;
  const RuleId root = rules.add_rule("root");
  JsonRules json(rules, whitespace);
  rules.define(root, json.object());
  rules.set_root(root);
  return rules;
}

}  // namespace strata::grammar
