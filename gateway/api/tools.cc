#include "gateway/api/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/string.hpp>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::size_t kToolNameBytesMax = 128;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameBytesMax && std::ranges::all_of(name, is_name_character);
}

bool offers(const Tools& tools, std::string_view name) {
  for (const auto& tool : tools.offered) {
    if (tool.at("function").at("name").get_string() == name) return true;
  }
  return false;
}

// What a tool is in either dialect. where: "tools[0].function.", for errors.
bool check_function(FieldReader& fields, const boost::json::object& function, const std::string& where,
                    const Tools& tools) {
  FieldReader inner(function, where);
  const std::string_view name = inner.string("name").value_or("");
  if (!is_tool_name(name)) {
    inner.fail("name", fmt::format("{}name must be a string of 1 to {} letters, digits, _ - . : or /", where,
                                   kToolNameBytesMax));
  } else if (offers(tools, name)) {
    inner.fail("name", fmt::format("{}name: there is a tool named {} already", where, snippet(name)));
  }
  inner.string("description");
  inner.object("parameters");
  if (inner.failed()) fields.fail(inner.error().value());
  return !inner.failed();
}

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
  const bool strict = inner.boolean("strict").value_or(false);
  if (inner.failed()) fields.fail(inner.error().value());
  offer(fields, value.get_object(), where + ".function.", strict, tools);
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
    return;
  }
  force_call(fields, tools, name);
}

// Calls f(element, place) for each element of the array `tools`.
template <class F>
void for_each_tool(FieldReader& fields, F f) {
  const boost::json::value* list = fields.find("tools");
  if (list == nullptr) return;
  if (!list->is_array()) {
    fields.fail("tools", fmt::format("tools must be an array, got {}", describe(*list)));
    return;
  }
  std::size_t index = 0;
  for (const auto& element : list->get_array()) f(element, fmt::format("tools[{}]", index++));
}

// An element in Anthropic's form, as the template gets it.
void read_message_tool(FieldReader& fields, const boost::json::value& value, const std::string& where,
                       Tools& tools) {
  if (!value.is_object()) {
    fields.fail("tools", fmt::format("{} must be an object, got {}", where, describe(value)));
    return;
  }
  FieldReader tool(value.get_object(), where + ".");
  const std::string_view type = tool.string("type").value_or("custom");
  if (!tool.failed() && type != "custom") {
    tools.dropped.emplace_back(type);
    return;
  }
  boost::json::object function, out;
  if (auto name = tool.string("name")) function["name"] = *name;
  if (auto description = tool.string("description")) function["description"] = *description;
  if (const auto* schema = tool.object("input_schema")) function["parameters"] = *schema;
  const bool strict = tool.boolean("strict").value_or(false);
  if (tool.failed()) {
    fields.fail(tool.error().value());
    return;
  }
  out["type"] = "function";
  out["function"] = std::move(function);
  offer(fields, std::move(out), where + ".", strict, tools);
}

void apply_message_choice(FieldReader& fields, Tools& tools) {
  const boost::json::object* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  FieldReader nested(*choice, "tool_choice.");
  const std::string_view type = nested.string("type").value_or("");
  const std::string_view name = nested.string("name").value_or("");
  tools.rule.one = nested.boolean("disable_parallel_tool_use").value_or(false);
  if (nested.failed()) {
    fields.fail(nested.error().value());
  } else if (type == "none") {
    tools.offered.clear();
  } else if (type == "any") {
    force_call(fields, tools, {});
  } else if (type == "tool" && !name.empty()) {
    force_call(fields, tools, name);
  } else if (type != "auto") {
    fields.fail("tool_choice",
                "tool_choice must have the type \"auto\", \"any\", \"none\", or \"tool\" and a name");
  }
}

}  // namespace

void force_call(FieldReader& fields, Tools& tools, std::string_view name) {
  if (tools.offered.empty()) {
    fields.fail("tool_choice", "tool_choice needs tools");
  } else if (!name.empty() && !offers(tools, name)) {
    fields.fail("tool_choice",
                fmt::format("tool_choice names {}, which is not among the tools", snippet(name)));
  }
  tools.rule.required = true;
  tools.rule.named = name;
}

void offer(FieldReader& fields, boost::json::object tool, const std::string& where, bool strict,
           Tools& tools) {
  const boost::json::object& function = tool.at("function").get_object();
  if (!check_function(fields, function, where, tools)) return;
  if (strict) tools.strict.emplace(function.at("name").get_string());
  tools.offered.push_back(std::move(tool));
}

Tools read_tools(FieldReader& fields) {
  Tools tools;
  for_each_tool(fields, [&](const auto& element, const std::string& where) {
    read_tool(fields, element, where, tools);
  });
  tools.rule.one = !fields.boolean("parallel_tool_calls").value_or(true);
  if (!fields.failed()) apply_choice(fields, tools);
  return tools;
}

Tools read_message_tools(FieldReader& fields) {
  Tools tools;
  for_each_tool(fields, [&](const auto& element, const std::string& where) {
    read_message_tool(fields, element, where, tools);
  });
  if (!fields.failed()) apply_message_choice(fields, tools);
  return tools;
}

}  // namespace strata::gateway
