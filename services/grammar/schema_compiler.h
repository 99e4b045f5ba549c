#pragma once
// The parts of the schema compiler share this class; each kind of value has a file of its own. Private to
// json_schema.h's implementation.

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/json_rules.h"
#include "services/grammar/regex.h"

namespace strata::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(JsonRules& json, const boost::json::value& root)
      : json_(json), rules_(json.rules()), root_(root) {}

  // `at`: JSON pointer of the schema, for messages.
  Result<NodeId> schema(const boost::json::value& schema, const std::string& at);
  // The schema with what its "$ref" leads to merged in; without "$ref" as it is.
  Result<boost::json::object> expanded(const boost::json::object& schema, const std::string& at) const;

 private:
  using Value = boost::json::value;
  using Object = boost::json::object;

  template <class... Args>
  static Failure error(const std::string& at, fmt::format_string<Args...> text, Args&&... args) {
    return fail(Code::kInvalidArgument, "schema at {}: {}", at,
                fmt::format(text, std::forward<Args>(args)...));
  }

  // schema_compiler.cc: which part of a schema decides.
  Result<NodeId> object_schema(const Object& schema, const std::string& at);
  Result<NodeId> reference(std::string_view target, const std::string& at);
  Result<const Value*> resolve(std::string_view target, const std::string& at) const;
  Result<NodeId> all_of(const Object& schema, const std::string& at);
  Result<NodeId> any_of(const Object& schema, std::string_view keyword, const std::string& at);
  Result<NodeId> values(const Object& schema, const std::string& at);
  Result<std::vector<std::string>> types_of(const Object& schema, const std::string& at) const;
  Result<NodeId> of_type(std::string_view type, const Object& schema, const std::string& at);
  static Status check_keywords(const Object& schema, const std::string& at);

  // schema_merge.cc: one schema that accepts what both accept.
  Result<Object> merged(const Object& a, const Object& b, const std::string& at) const;
  static bool is_impossible(const Object& schema);  // a merged one: the two have no type in common

  // schema_containers.cc
  struct Property {
    std::string name;
    NodeId value = 0;
    bool required = false;
  };
  Result<NodeId> object_value(const Object& schema, const std::string& at);
  Result<std::vector<Property>> properties_of(const Object& schema, const std::string& at);
  Status check_property_counts(const Object& schema, const std::vector<Property>& properties, bool more,
                               const std::string& at) const;
  NodeId members(const std::vector<Property>& properties, std::optional<NodeId> more);
  NodeId name_other_than(const std::vector<Property>& properties);
  Result<NodeId> array_value(const Object& schema, const std::string& at);

  // schema_scalars.cc
  Result<NodeId> string_value(const Object& schema, const std::string& at);
  Result<NodeId> pattern_value(std::string_view pattern, std::string_view keyword, const Object& schema,
                               const std::string& at);
  Result<NodeId> integer_value(const Object& schema, const std::string& at);
  Result<NodeId> number_value(const Object& schema, const std::string& at);

  // A non-negative whole number; nothing if the keyword is not there.
  static Result<std::optional<uint64_t>> count(const Object& schema, std::string_view keyword,
                                               const std::string& at);

  JsonRules& json_;
  Rules& rules_;
  const Value& root_;
  std::map<std::string, RuleId, std::less<>> referenced_;  // by pointer
  uint32_t nesting_ = 0;
  uint32_t schemas_ = 0;
};

// Bounded as limits.h says.
Result<boost::json::value> parse_schema(std::string_view schema);
// Compact JSON with members in their order.
std::string json_text(const boost::json::value& value);
// "a", "b/c" -> escaped for a JSON pointer.
std::string pointer_token(std::string_view name);

// The regular expression of a "format"; nothing for one that is not known.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace strata::grammar
