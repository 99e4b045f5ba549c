#include "services/grammar/tool_calls.h"

#include <algorithm>
#include <set>

#include "services/grammar/tool_arguments.h"

namespace strata::grammar {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::size_t kNameMax = 128;

bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '/';
  };
  return !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), fits);
}

Status check_tools(std::span<const Tool> tools, const ToolCallOptions& options) {
  if (tools.empty()) return fail(Code::kInvalidArgument, "tools: there are none");
  std::set<std::string_view> names;
  for (const Tool& tool : tools) {
    if (!is_name(tool.name)) {
      return fail(Code::kInvalidArgument,
                  "tools: \"{}\" is no name of a function (1 to {} letters, digits, _ - . : /)", tool.name,
                  kNameMax);
    }
    if (!names.insert(tool.name).second)
      return fail(Code::kInvalidArgument, "tools: \"{}\" is there twice", tool.name);
  }
  if (options.choice == ToolChoice::kNamed && !names.contains(options.named)) {
    return fail(Code::kInvalidArgument, "tool_choice: \"{}\" is not one of the tools", options.named);
  }
  return {};
}

// What stands between the marks, line ends included.
NodeId call_of(JsonRules& json, const Tool& tool, ToolFormat format, NodeId arguments) {
  Rules& rules = json.rules();
  if (format == ToolFormat::kJson) {
    return rules.sequence({rules.bytes(fmt::format("\n{{\"name\": \"{}\", \"arguments\": ", tool.name)),
                           arguments, rules.bytes("}\n")});
  }
  return rules.sequence(
      {rules.bytes(fmt::format("\n<function={}>\n", tool.name)), arguments, rules.bytes("</function>\n")});
}

}  // namespace

ToolFormat tool_format_of_template(std::string_view chat_template) {
  return chat_template.find("<function=") == std::string_view::npos ? ToolFormat::kJson
                                                                    : ToolFormat::kParameters;
}

Result<ToolCallRules> rules_of_tools(std::span<const Tool> tools, const ToolCallOptions& options) {
  TRY_OK(check_tools(tools, options));
  ToolCallRules result;
  Rules& rules = result.rules;
  const RuleId root = rules.add_rule("root");
  JsonRules json(rules, options.whitespace);
  std::vector<NodeId> calls;
  for (const Tool& tool : tools) {
    if (options.choice == ToolChoice::kNamed && tool.name != options.named) continue;
    Result<NodeId> arguments = add_tool_arguments(json, tool, options.format);
    if (!arguments && tool.strict) return forward_failure(std::move(arguments));
    if (!arguments) result.warnings.push_back(arguments.error().message());
    calls.push_back(call_of(json, tool, options.format,
                            arguments ? *arguments : any_tool_arguments(json, options.format)));
  }
  // "\n<tool_call>" may follow each call.
  const NodeId call = rules.choice(std::move(calls));
  const NodeId another = rules.sequence({rules.bytes("\n"), rules.token(kOpen), call, rules.token(kClose)});
  std::vector<NodeId> behind_open = {call, rules.token(kClose)};
  if (options.parallel) behind_open.push_back(rules.repeat(another, 0, kUnbounded));
  const NodeId called = rules.sequence({rules.token(kOpen), rules.sequence(std::move(behind_open))});
  rules.set_root(root);
  if (options.choice == ToolChoice::kAuto) {
    const NodeId text = rules.repeat(rules.chars(CodePoints::all()), 0, kUnbounded);
    rules.define(root, rules.sequence({text, rules.optional(called)}));
  } else {
    rules.define(root, called);
  }
  return result;
}

}  // namespace strata::grammar
