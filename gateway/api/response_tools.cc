#include "gateway/api/response_tools.h"

#include <fmt/format.h>

#include <boost/json/string.hpp>
#include <set>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kSeparator = "__";

class ToolsReader {
 public:
  explicit ToolsReader(FieldReader& fields) : fields_(fields) {}

  ResponseTools read() {
    if (const boost::json::value* list = fields_.find("tools")) read_list(*list, "tools", "");
    out_.tools.rule.one = !fields_.boolean("parallel_tool_calls").value_or(true);
    if (!fields_.failed()) apply_choice();
    return std::move(out_);
  }

 private:
  void read_list(const boost::json::value& list, const std::string& where, std::string_view name_space) {
    if (!list.is_array()) {
      fields_.fail(where, fmt::format("{} must be an array, got {}", where, describe(list)));
      return;
    }
    std::size_t index = 0;
    for (const auto& element : list.get_array())
      read_tool(element, fmt::format("{}[{}]", where, index++), name_space);
  }

  void read_tool(const boost::json::value& value, const std::string& where, std::string_view name_space) {
    if (!value.is_object()) {
      fields_.fail("tools", fmt::format("{} must be an object, got {}", where, describe(value)));
      return;
    }
    FieldReader tool(value.get_object(), where + ".");
    const auto type = tool.string("type");
    if (!tool.failed() && !type) tool.fail("type", fmt::format("{}.type is missing", where));
    if (!tool.failed()) read_typed(tool, *type, where, name_space);
    if (tool.failed()) fields_.fail(tool.error().value());
  }

  void read_typed(FieldReader& tool, std::string_view type, const std::string& where,
                  std::string_view name_space) {
    if (type == "function") {
      boost::json::object function = described(tool, name_space);
      if (const auto* parameters = tool.object("parameters")) function["parameters"] = *parameters;
      add(tool, std::move(function), where, name_space, tool.boolean("strict").value_or(false));
    } else if (type == "custom") {
      read_free_form(tool, where, name_space);
    } else if (type == "namespace" && name_space.empty()) {
      const std::string_view name = tool.string("name").value_or("");
      const boost::json::value* members = tool.find("tools");
      if (!tool.failed() && name.empty()) tool.fail("name", fmt::format("{}.name is missing", where));
      if (!tool.failed() && members != nullptr) read_list(*members, where + ".tools", name);
    } else {
      out_.tools.dropped.emplace_back(type);
    }
  }

  // A grammar cannot be enforced inside a call's text; the model is told about it.
  void read_free_form(FieldReader& tool, const std::string& where, std::string_view name_space) {
    boost::json::object function = described(tool, name_space);
    if (const boost::json::object* format = tool.object("format")) {
      FieldReader nested(*format, where + ".format.");
      const std::string_view syntax = nested.string("syntax").value_or("");
      const std::string_view definition = nested.string("definition").value_or("");
      if (nested.failed()) tool.fail(nested.error().value());
      if (!definition.empty()) {
        const boost::json::value* description = function.if_contains("description");
        const std::string text =
            description == nullptr ? "" : std::string(description->get_string()) + "\n\n";
        function["description"] =
            fmt::format("{}The input follows this {} grammar:\n{}", text, syntax, definition);
      }
    }
    boost::json::object input, properties, parameters;
    input["type"] = "string";
    properties[kFreeFormParameter] = std::move(input);
    parameters["type"] = "object";
    parameters["properties"] = std::move(properties);
    parameters["required"] = boost::json::array{boost::json::value(kFreeFormParameter)};
    parameters["additionalProperties"] = false;
    function["parameters"] = std::move(parameters);
    add(tool, std::move(function), where, name_space, /*strict=*/true, /*free_form=*/true);
  }

  static boost::json::object described(FieldReader& tool, std::string_view name_space) {
    boost::json::object function;
    if (auto name = tool.string("name")) function["name"] = model_tool_name(name_space, *name);
    if (auto description = tool.string("description")) function["description"] = *description;
    return function;
  }

  void add(FieldReader& tool, boost::json::object function, const std::string& where,
           std::string_view name_space, bool strict, bool free_form = false) {
    if (tool.failed()) return;
    ClientTool known{.name = std::string(tool.string("name").value_or("")),
                     .name_space = std::string(name_space),
                     .free_form = free_form};
    boost::json::object entry;
    entry["type"] = "function";
    entry["function"] = std::move(function);
    offer(fields_, std::move(entry), where + ".", strict, out_.tools);
    if (!fields_.failed()) out_.client[model_tool_name(name_space, known.name)] = std::move(known);
  }

  // ---- tool_choice

  void apply_choice() {
    const boost::json::value* choice = fields_.find("tool_choice");
    if (choice == nullptr) return;
    if (choice->is_string()) return apply_word(choice->get_string(), "tool_choice");
    if (!choice->is_object()) return refuse_choice();
    FieldReader nested(choice->get_object(), "tool_choice.");
    const std::string_view type = nested.string("type").value_or("");
    const std::string name = chosen_name(nested);
    if (type == "allowed_tools") {
      allow(nested);
    } else if ((type == "function" || type == "custom") && !name.empty()) {
      force_call(fields_, out_.tools, name);
    } else {
      refuse_choice();
    }
    if (nested.failed()) fields_.fail(nested.error().value());
  }

  void apply_word(std::string_view word, std::string_view where) {
    if (word == "none") {
      out_.tools.offered.clear();
    } else if (word == "required") {
      force_call(fields_, out_.tools, {});
    } else if (word != "auto") {
      refuse_choice(where);
    }
  }

  // {"type": "allowed_tools", "mode": "auto" | "required", "tools": [{"type", "name"}, ...]}
  void allow(FieldReader& choice) {
    const boost::json::value* list = choice.find("tools");
    if (list == nullptr || !list->is_array()) {
      choice.fail("tools", "tool_choice.tools must be an array of tools");
      return;
    }
    std::set<std::string, std::less<>> allowed;
    for (const auto& element : list->get_array()) {
      if (!element.is_object()) continue;
      FieldReader tool(element.get_object());
      allowed.insert(chosen_name(tool));
    }
    boost::json::array kept;
    for (auto& tool : out_.tools.offered) {
      if (allowed.contains(std::string_view(tool.at("function").at("name").get_string())))
        kept.push_back(std::move(tool));
    }
    out_.tools.offered = std::move(kept);
    apply_word(choice.string("mode").value_or("auto"), "tool_choice.mode");
  }

  static std::string chosen_name(FieldReader& choice) {
    const std::string_view name = choice.string("name").value_or("");
    return name.empty() ? std::string() : model_tool_name(choice.string("namespace").value_or(""), name);
  }

  void refuse_choice(std::string_view where = "tool_choice") {
    fields_.fail(
        where,
        fmt::format("{} must be \"none\", \"auto\", \"required\", or name functions or custom tools", where));
  }

  FieldReader& fields_;
  ResponseTools out_;
};

}  // namespace

ResponseTools read_response_tools(FieldReader& fields) { return ToolsReader(fields).read(); }

std::string model_tool_name(std::string_view name_space, std::string_view name) {
  std::string out(name_space);
  if (!out.empty() && !out.ends_with(kSeparator)) out += kSeparator;
  out += name;
  return out;
}

}  // namespace strata::gateway
