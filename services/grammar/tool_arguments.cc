#include "services/grammar/tool_arguments.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "services/grammar/free_text.h"
#include "services/grammar/json_schema.h"
#include "services/grammar/schema_compiler.h"

namespace strata::grammar {
namespace {

using boost::json::object;
using boost::json::value;

constexpr std::string_view kParameterEnd = "\n</parameter>";

std::string_view text(boost::json::string_view view) { return {view.data(), view.size()}; }

// <parameter=KEY>, a line end, anything, and the end mark on a line of its own.
NodeId text_parameter(Rules& rules, NodeId opening) {
  // Once for all parameters. Made-up names have no underscore.
  const RuleId body = rules.rule("parameter_text");
  if (rules.body(body) == kNoNode) {
    rules.define(body, add_free_text(rules, {.marker = kParameterEnd, .behind = rules.bytes("\n")}));
  }
  return rules.sequence({opening, rules.reference(body)});
}

NodeId value_parameter(Rules& rules, NodeId opening, NodeId content) {
  return rules.sequence({opening, content, rules.bytes(kParameterEnd), rules.bytes("\n")});
}

NodeId opening_of(Rules& rules, std::string_view name) {
  return rules.bytes(fmt::format("<parameter={}>\n", name));
}

// Whether a value is written as bare text: strings are, and what may be one.
bool may_be_string(const object& schema) {
  const value* type = schema.if_contains("type");
  if (type == nullptr) return true;
  if (type->is_array())
    return std::find(type->get_array().begin(), type->get_array().end(), "string") != type->get_array().end();
  return *type == "string";
}

// Only strings, with something said about them.
bool is_narrow_string(const object& schema) {
  const value* type = schema.if_contains("type");
  if (type == nullptr || *type != "string") return false;
  return std::any_of(schema.begin(), schema.end(), [](const auto& member) {
    const std::string_view word = text(member.key());
    return word == "enum" || word == "const" || word == "minLength" || word == "maxLength" ||
           word == "pattern" || word == "format";
  });
}

class ParameterWriter {
 public:
  ParameterWriter(JsonRules& json, const value& root)
      : rules_(json.rules()),
        json_(json),
        bare_(json.rules(), json.whitespace(), JsonStrings::kBare),
        quoted_compiler_(json, root),
        bare_compiler_(bare_, root) {}

  Result<NodeId> arguments(const value& root) {
    // As JSON first: what is not understood is refused wherever it stands.
    TRY_OK(quoted_compiler_.schema(root, "#").map([](NodeId) {}));
    const object& schema = root.get_object();
    for (const std::string_view keyword : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const"}) {
      if (schema.contains(keyword)) {
        return fail(Code::kInvalidArgument, "schema at #: \"{}\" of all arguments is not supported", keyword);
      }
    }
    const value* properties = schema.if_contains("properties");
    const value* required = schema.if_contains("required");
    const value* additional = schema.if_contains("additionalProperties");
    if (properties == nullptr) {
      const bool none = additional != nullptr && additional->is_bool() && !additional->get_bool();
      return none ? rules_.empty() : any_tool_arguments(json_, ToolFormat::kParameters);
    }
    std::vector<NodeId> parts;
    for (const auto& member : properties->get_object()) {
      TRY(const NodeId one, parameter(text(member.key()), member.value()));
      const bool needed =
          required != nullptr && std::find(required->get_array().begin(), required->get_array().end(),
                                           value(member.key())) != required->get_array().end();
      parts.push_back(needed ? one : rules_.optional(one));
    }
    return rules_.sequence(std::move(parts));
  }

 private:
  Result<NodeId> parameter(std::string_view name, const value& described) {
    const std::string at = fmt::format("#/properties/{}", pointer_token(name));
    if (name.empty() || name.find_first_of("<>\n") != std::string_view::npos) {
      return fail(Code::kInvalidArgument, "schema at {}: this name cannot stand in <parameter=...>", at);
    }
    const NodeId opening = opening_of(rules_, name);
    if (!described.is_object()) return text_parameter(rules_, opening);
    TRY(const object schema, bare_compiler_.expanded(described.get_object(), at));
    if (is_narrow_string(schema)) {
      TRY(const NodeId content, bare_compiler_.schema(value(schema), at));
      return value_parameter(rules_, opening, content);
    }
    if (may_be_string(schema)) return text_parameter(rules_, opening);
    TRY(const NodeId content, quoted_compiler_.schema(value(schema), at));
    return value_parameter(rules_, opening, content);
  }

  Rules& rules_;
  JsonRules& json_;
  JsonRules bare_;
  SchemaCompiler quoted_compiler_, bare_compiler_;
};

// The schema of a tool as JSON, an object that says so.
Result<value> schema_of(const Tool& tool) {
  if (tool.parameters.empty()) return value(object{{"type", "object"}, {"additionalProperties", false}});
  TRY(value root, parse_schema(tool.parameters));
  if (!root.is_object()) return fail(Code::kInvalidArgument, "schema at #: arguments are an object");
  object& schema = root.get_object();
  for (const std::string_view keyword : {"type", "$ref", "allOf", "anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return root;
  }
  schema["type"] = "object";
  return root;
}

Result<NodeId> arguments_of(JsonRules& json, const Tool& tool, ToolFormat format) {
  TRY(const value root, schema_of(tool));
  if (const value* type = root.get_object().if_contains("type"); type != nullptr && *type != "object") {
    return fail(Code::kInvalidArgument, "schema at #: \"type\" of arguments must be \"object\"");
  }
  if (format == ToolFormat::kParameters) return ParameterWriter(json, root).arguments(root);
  return SchemaCompiler(json, root).schema(root, "#");
}

}  // namespace

Result<NodeId> add_tool_arguments(JsonRules& json, const Tool& tool, ToolFormat format) {
  Result<NodeId> result = arguments_of(json, tool, format);
  if (result) return result;
  return fail(result.error().code(), "tool \"{}\": {}", tool.name, result.error().message());
}

NodeId any_tool_arguments(JsonRules& json, ToolFormat format) {
  if (format == ToolFormat::kJson) return json.object();
  Rules& rules = json.rules();
  const NodeId name = rules.repeat(
      rules.chars(CodePoints({{'<', '<'}, {'>', '>'}, {'\n', '\n'}}).complement()), 1, kUnbounded);
  const NodeId opening = rules.sequence({rules.bytes("<parameter="), name, rules.bytes(">\n")});
  return rules.repeat(text_parameter(rules, opening), 0, kUnbounded);
}

}  // namespace strata::grammar
