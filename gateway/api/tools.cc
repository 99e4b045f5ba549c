#include "gateway/api/tools.h"

#include <fmt/format.h>

#include <boost/json/string.hpp>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::size_t kToolNameBytesMax = 128;

// Adds one element of `tools`, or says what is wrong with it.
void read_tool(FieldReader& fields, const boost::json::value& value, const std::string& where, Tools& tools) {
  if (!value.is_object()) {
    fields.fail("tools", fmt::format("{} must be an object, got {}", where, describe(value)));
    return;
  }
  FieldReader tool(value.get_object(), where + ".");
  auto type = tool.string("type");
  if (!tool.failed() && !type)
    tool.fail("type", fmt::format("{}.type is missing; expected \"function\"", where));
  if (!tool.failed() && *type != "function") {
    tools.dropped.emplace_back(*type);
    return;
  }
  const boost::json::object* function = tool.object("function");
  if (!tool.failed() && function == nullptr)
    tool.fail("function", fmt::format("{}.function is missing", where));
  if (tool.failed()) {
    fields.fail(tool.error().value());
    return;
  }
  FieldReader inner(*function, where + ".function.");
  auto name = inner.string("name");
  if (!name || name->empty() || name->size() > kToolNameBytesMax) {
    inner.fail("name",
               fmt::format("{}.function.name must be a string of 1 to {} bytes", where, kToolNameBytesMax));
  }
  inner.string("description");
  inner.object("parameters");
  if (inner.failed()) {
    fields.fail(inner.error().value());
    return;
  }
  tools.offered.push_back(value);
}

bool offers(const Tools& tools, std::string_view name) {
  for (const auto& tool : tools.offered) {
    if (tool.at("function").at("name").get_string() == name) return true;
  }
  return false;
}

// The name in {"type":"function","function":{"name":...}}; empty if it has another form.
std::string_view named_function(const boost::json::value& choice) {
  if (!choice.is_object()) return {};
  FieldReader fields(choice.get_object());
  const auto* function = fields.object("function");
  if (function == nullptr) return {};
  return FieldReader(*function).string("name").value_or("");
}

void apply_choice(FieldReader& fields, Tools& tools) {
  const boost::json::value* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  std::string_view word = choice->is_string() ? std::string_view(choice->get_string()) : std::string_view();
  if (word == "auto") return;
  if (word == "none") {
    tools.offered.clear();
    return;
  }
  std::string_view name = named_function(*choice);
  if (word != "required" && name.empty()) {
    fields.fail("tool_choice",
                fmt::format("tool_choice must be \"none\", \"auto\", \"required\" or name a function, got {}",
                            describe(*choice)));
  } else if (tools.offered.empty()) {
    fields.fail("tool_choice", "tool_choice needs tools");
  } else if (!name.empty() && !offers(tools, name)) {
    fields.fail("tool_choice",
                fmt::format("tool_choice names {}, which is not among the tools", snippet(name)));
  } else {
    // Nothing could keep the model to it yet; an answer without the call would be a silent lie (rule B18).
    fields.fail("tool_choice",
                "a forced tool_choice is not supported by this version; \"auto\" and \"none\" are");
  }
}

}  // namespace

Tools read_tools(FieldReader& fields) {
  Tools tools;
  if (const boost::json::value* list = fields.find("tools")) {
    if (!list->is_array()) {
      fields.fail("tools", fmt::format("tools must be an array, got {}", describe(*list)));
      return tools;
    }
    std::size_t index = 0;
    for (const auto& element : list->get_array())
      read_tool(fields, element, fmt::format("tools[{}]", index++), tools);
  }
  fields.boolean("parallel_tool_calls");
  if (!fields.failed()) apply_choice(fields, tools);
  return tools;
}

}  // namespace strata::gateway
