#pragma once
// The arguments of a call, in either form. Private to tool_calls.h's implementation.

#include "services/base/status.h"
#include "services/grammar/json_rules.h"
#include "services/grammar/tool_calls.h"

namespace strata::grammar {

// Errors name the tool.
Result<NodeId> add_tool_arguments(JsonRules& json, const Tool& tool, ToolFormat format);
// Of a tool whose schema is not understood.
NodeId any_tool_arguments(JsonRules& json, ToolFormat format);

}  // namespace strata::grammar
