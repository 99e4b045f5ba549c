// Two schemas that must both hold, as one. What has no common form in the subset is refused.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "services/grammar/schema_compiler.h"

namespace strata::grammar {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr uint32_t kReferencesFollowedMax = 50;

std::string_view text(boost::json::string_view view) { return {view.data(), view.size()}; }

array as_list(const value& v) { return v.is_array() ? v.get_array() : array{v}; }

bool list_holds(const array& list, const value& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

// Types of both; "integer" is what "number" and "integer" have in common.
value common_types(const value& a, const value& b) {
  const array first = as_list(a), second = as_list(b);
  array both;
  for (const value& type : first) {
    if (list_holds(second, type) || (type == "integer" && list_holds(second, "number"))) both.push_back(type);
  }
  if (list_holds(first, "number") && list_holds(second, "integer") && !list_holds(both, "integer") &&
      !list_holds(both, "number")) {
    both.push_back("integer");
  }
  return both;
}

bool is_false(const object& schema, std::string_view keyword) {
  const value* v = schema.if_contains(keyword);
  return v != nullptr && v->is_bool() && !v->get_bool();
}

bool is_word(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

value both_hold(const value& a, const value& b) { return a == b ? a : value(object{{"allOf", array{a, b}}}); }

}  // namespace

Result<object> SchemaCompiler::expanded(const object& schema, const std::string& at) const {
  object result = schema;
  for (uint32_t followed = 0; result.contains("$ref"); ++followed) {
    const value target = result.at("$ref");
    if (!target.is_string()) return error(at, "\"$ref\" must be a string");
    const std::string_view pointer = text(target.get_string());
    if (followed == kReferencesFollowedMax) return error(at, "\"$ref\" leads in a circle to \"{}\"", pointer);
    TRY(const value* there, resolve(pointer, at));
    if (!there->is_object()) return error(at, "\"$ref\" beside other keywords must lead to an object");
    TRY_OK(check_keywords(there->get_object(), std::string(pointer)));
    result.erase("$ref");
    TRY(result, merged(result, there->get_object(), at));
    if (is_impossible(result)) return error(at, "\"type\" contradicts what it is combined with");
  }
  return result;
}

bool SchemaCompiler::is_impossible(const object& schema) {
  const value* type = schema.if_contains("type");
  return type != nullptr && type->is_array() && type->get_array().empty();
}

Result<object> SchemaCompiler::merged(const object& a, const object& b, const std::string& at) const {
  object result = a;
  for (const auto& member : b) {
    const std::string_view word = text(member.key());
    const value& from_b = member.value();
    value* from_a = result.if_contains(word);
    if (from_a == nullptr) {
      result[word] = from_b;
      continue;
    }
    if (*from_a == from_b) continue;
    const bool numbers = from_a->is_number() && from_b.is_number();
    const auto less = [](const value& x, const value& y) {
      return x.to_number<double>() < y.to_number<double>();
    };
    if (is_word(word, {"title", "description", "default", "example", "examples", "$schema", "$id", "$comment",
                       "$defs", "definitions"})) {
      continue;
    }
    if (word == "type") {
      *from_a = common_types(*from_a, from_b);
    } else if (word == "properties" && from_a->is_object() && from_b.is_object()) {
      for (const auto& property : from_b.get_object()) {
        value& there = from_a->get_object()[property.key()];
        there = there.is_null() ? property.value() : both_hold(there, property.value());
      }
    } else if (word == "required" && from_a->is_array() && from_b.is_array()) {
      for (const value& name : from_b.get_array()) {
        if (!list_holds(from_a->get_array(), name)) from_a->get_array().push_back(name);
      }
    } else if (word == "enum" && from_a->is_array() && from_b.is_array()) {
      array both;
      for (const value& v : from_a->get_array()) {
        if (list_holds(from_b.get_array(), v)) both.push_back(v);
      }
      *from_a = std::move(both);
    } else if (numbers &&
               is_word(word, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
      if (less(*from_a, from_b)) *from_a = from_b;
    } else if (numbers &&
               is_word(word, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
      if (less(from_b, *from_a)) *from_a = from_b;
    } else if (word == "items" || word == "additionalProperties") {
      *from_a = both_hold(*from_a, from_b);
      if (is_false(a, word) || is_false(b, word)) *from_a = false;
    } else if (word == "allOf" && from_a->is_array() && from_b.is_array()) {
      for (const value& part : from_b.get_array()) from_a->get_array().push_back(part);
    } else if (word == "nullable") {
      *from_a = false;
    } else {
      return error(at, "\"{}\" is given twice and cannot be merged", word);
    }
  }
  // A property that one side does not name is, to it, an additional one.
  for (const auto& [mine, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const value* additional = mine->if_contains("additionalProperties");
    const value* others = other->if_contains("properties");
    if (additional == nullptr || others == nullptr || !others->is_object()) continue;
    if (additional->is_bool() && additional->get_bool()) continue;
    const value* named = mine->if_contains("properties");
    for (const auto& property : others->get_object()) {
      if (named != nullptr && named->is_object() && named->get_object().contains(property.key())) continue;
      value& there = result["properties"].get_object()[property.key()];
      there = additional->is_bool() ? value(false) : both_hold(there, *additional);
    }
  }
  return result;
}

}  // namespace strata::grammar
