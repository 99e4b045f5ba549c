#pragma once
// A JSON Schema validator for tests, written from the specification and sharing nothing with the compiler.

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <regex>
#include <string>

namespace strata::grammar {

class SchemaChecker {
 public:
  explicit SchemaChecker(const boost::json::value& root) : root_(root) {}

  bool accepts(const boost::json::value& v) const { return accepts(root_, v); }

 private:
  using Value = boost::json::value;

  static bool is_integer(const Value& v) {
    return v.is_int64() || v.is_uint64() || (v.is_double() && std::floor(v.get_double()) == v.get_double());
  }
  static bool is_type(std::string_view type, const Value& v) {
    return (type == "object" && v.is_object()) || (type == "array" && v.is_array()) ||
           (type == "string" && v.is_string()) || (type == "number" && v.is_number()) ||
           (type == "integer" && v.is_number() && is_integer(v)) || (type == "boolean" && v.is_bool()) ||
           (type == "null" && v.is_null());
  }
  static double number(const Value& v) { return v.to_number<double>(); }
  static std::size_t characters(const boost::json::string& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  const Value& resolve(const std::string& pointer) const { return root_.at_pointer(pointer.substr(1)); }

  bool accepts(const Value& schema, const Value& v) const {
    if (schema.is_bool()) return schema.get_bool();
    for (const auto& [key, rule] : schema.get_object()) {
      if (!holds(schema.get_object(), std::string(key), rule, v)) return false;
    }
    return true;
  }

  bool holds(const boost::json::object& schema, const std::string& key, const Value& rule,
             const Value& v) const {
    const auto any = [&](const auto& list, auto test) { return std::any_of(list.begin(), list.end(), test); };
    const auto all = [&](const auto& list, auto test) { return std::all_of(list.begin(), list.end(), test); };
    if (key == "type" && rule.is_array()) {
      return any(rule.get_array(), [&](const Value& t) { return is_type(t.get_string().c_str(), v); });
    }
    if (key == "type") return is_type(rule.get_string().c_str(), v);
    if (key == "enum") return any(rule.get_array(), [&](const Value& e) { return e == v; });
    if (key == "const") return rule == v;
    if (key == "anyOf" || key == "oneOf")
      return any(rule.get_array(), [&](const Value& s) { return accepts(s, v); });
    if (key == "allOf") return all(rule.get_array(), [&](const Value& s) { return accepts(s, v); });
    if (key == "$ref") return accepts(resolve(rule.get_string().c_str()), v);
    if (v.is_object()) return holds_for_object(schema, key, rule, v.get_object());
    if (v.is_array()) return holds_for_array(schema, key, rule, v.get_array());
    if (v.is_string()) return holds_for_string(key, rule, v.get_string());
    if (v.is_number()) return holds_for_number(key, rule, number(v));
    return true;
  }

  bool holds_for_object(const boost::json::object& schema, const std::string& key, const Value& rule,
                        const boost::json::object& object) const {
    if (key == "required") {
      for (const Value& name : rule.get_array()) {
        if (!object.contains(name.get_string())) return false;
      }
    } else if (key == "properties") {
      for (const auto& [name, property] : rule.get_object()) {
        if (const Value* v = object.if_contains(name); v != nullptr && !accepts(property, *v)) return false;
      }
    } else if (key == "additionalProperties") {
      const Value* named = schema.if_contains("properties");
      for (const auto& [name, v] : object) {
        if ((named == nullptr || !named->get_object().contains(name)) && !accepts(rule, v)) return false;
      }
    } else if (key == "minProperties") {
      return object.size() >= number(rule);
    } else if (key == "maxProperties") {
      return object.size() <= number(rule);
    }
    return true;
  }

  bool holds_for_array(const boost::json::object& schema, const std::string& key, const Value& rule,
                       const boost::json::array& array) const {
    if (key == "minItems") return static_cast<double>(array.size()) >= number(rule);
    if (key == "maxItems") return static_cast<double>(array.size()) <= number(rule);
    const Value* prefix = schema.if_contains("prefixItems");
    const std::size_t described = prefix == nullptr ? 0 : prefix->get_array().size();
    for (std::size_t i = 0; i < array.size(); ++i) {
      if (key == "items" && i >= described && !accepts(rule, array[i])) return false;
      if (key == "prefixItems" && i < described && !accepts(rule.get_array()[i], array[i])) return false;
    }
    return true;
  }

  static bool holds_for_string(const std::string& key, const Value& rule, const boost::json::string& text) {
    if (key == "minLength") return static_cast<double>(characters(text)) >= number(rule);
    if (key == "maxLength") return static_cast<double>(characters(text)) <= number(rule);
    if (key == "pattern") return std::regex_search(std::string(text), std::regex(rule.get_string().c_str()));
    if (key == "format") return is_format(rule.get_string().c_str(), std::string(text));
    return true;
  }

  static bool holds_for_number(const std::string& key, const Value& rule, double v) {
    if (key == "minimum") return v >= number(rule);
    if (key == "maximum") return v <= number(rule);
    if (key == "exclusiveMinimum") return v > number(rule);
    if (key == "exclusiveMaximum") return v < number(rule);
    return true;
  }

  static bool is_date(const std::string& text) {
    int year = 0, month = 0, day = 0;
    if (text.size() != 10 || std::sscanf(text.c_str(), "%4d-%2d-%2d", &year, &month, &day) != 3) return false;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  }
  static bool is_time(const std::string& text) {
    int hour = 0, minute = 0, second = 0;
    return text.size() >= 9 && std::sscanf(text.c_str(), "%2d:%2d:%2d", &hour, &minute, &second) == 3 &&
           hour < 24 && minute < 60 && second < 60 &&
           std::regex_match(text.substr(8), std::regex("(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)"));
  }
  static bool is_format(const std::string& format, const std::string& text) {
    if (format == "date") return is_date(text);
    if (format == "time") return is_time(text);
    if (format == "date-time")
      return text.size() > 11 && text[10] == 'T' && is_date(text.substr(0, 10)) && is_time(text.substr(11));
    if (format == "uuid")
      return text.size() == 36 && std::regex_match(text, std::regex("[0-9a-fA-F]+(-[0-9a-fA-F]+){4}"));
    if (format == "email")
      return std::count(text.begin(), text.end(), '@') == 1 && text.find("..") == std::string::npos;
    if (format == "ipv4") {
      int a = 0, b = 0, c = 0, d = 0, end = 0;
      return std::sscanf(text.c_str(), "%d.%d.%d.%d%n", &a, &b, &c, &d, &end) == 4 &&
             static_cast<std::size_t>(end) == text.size() && std::max({a, b, c, d}) < 256;
    }
    return true;
  }

  const Value& root_;
};

}  // namespace strata::grammar
