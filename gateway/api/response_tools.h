#pragma once
// The tools of POST /v1/responses. Models know functions with a name and parameters, nothing else: tools of a
// namespace get a longer name, free-form tools one parameter, and what the model calls is named for the
// client as it named it (rule B8).

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/api/tools.h"

namespace strata::gateway {

// A tool as the client knows it.
struct ClientTool {
  std::string name = {};
  std::string name_space = {};  // empty: none
  bool free_form = false;       // type "custom": takes a text instead of arguments
};

// By the name that the model knows.
using ClientTools = std::map<std::string, ClientTool, std::less<>>;

struct ResponseTools {
  Tools tools = {};
  ClientTools client = {};
};

// Reads tools, tool_choice and parallel_tool_calls; faults go to `fields`.
ResponseTools read_response_tools(FieldReader& fields);

// What the model calls a tool of a namespace: mcp__weather and lookup -> mcp__weather__lookup.
std::string model_tool_name(std::string_view name_space, std::string_view name);

// The parameter of a free-form tool.
inline constexpr std::string_view kFreeFormParameter = "input";

}  // namespace strata::gateway
