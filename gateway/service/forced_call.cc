#include "gateway/service/forced_call.h"

#include <boost/json/object.hpp>

#include "gateway/api/field_reader.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

using tokenizer::Origin;

bool is_string_schema(const boost::json::value& schema) {
  if (!schema.is_object()) return false;
  const boost::json::value* type = schema.get_object().if_contains("type");
  return type != nullptr && type->is_string() && type->get_string() == "string";
}

std::string only_name(const Tools& tools) {
  if (!tools.rule.named.empty()) return tools.rule.named;
  if (tools.offered.size() != 1) return {};
  return std::string(tools.offered.front().at("function").at("name").get_string());
}

}  // namespace

std::optional<tokenizer::MarkedText> begun_call(const Tools& tools, grammar::ToolFormat format) {
  if (!tools.rule.required) return {};
  tokenizer::MarkedText text("\n", Origin::kTemplate);
  const std::string name = only_name(tools);
  if (name.empty()) return text;
  if (format == grammar::ToolFormat::kJson) {
    // No space at the end: it belongs to the first token of the arguments.
    text.append("{\"name\": ", Origin::kTemplate);
    text.append(to_json(boost::json::value(name)), Origin::kRequest);
    text.append(", \"arguments\":", Origin::kTemplate);
  } else {
    text.append("<function=", Origin::kTemplate);
    text.append(name, Origin::kRequest);
    text.append(">\n", Origin::kTemplate);
  }
  return text;
}

StringParameters string_parameters(const Tools& tools) {
  StringParameters out;
  for (const auto& tool : tools.offered) {
    const boost::json::object& function = tool.at("function").get_object();
    FieldReader fields(function);
    const boost::json::object* schema = fields.object("parameters");
    const boost::json::object* properties =
        schema == nullptr ? nullptr : FieldReader(*schema).object("properties");
    if (properties == nullptr) continue;
    for (const auto& property : *properties) {
      if (is_string_schema(property.value()))
        out.emplace(std::string(function.at("name").get_string()), std::string(property.key()));
    }
  }
  return out;
}

}  // namespace strata::gateway
