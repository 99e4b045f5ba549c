#pragma once
// The tools of a request and what tool_choice makes of them, in either dialect.

#include <boost/json/array.hpp>
#include <set>
#include <string>
#include <vector>

#include "gateway/api/field_reader.h"

namespace strata::gateway {

// Which calls the answer must or may hold.
struct CallRule {
  bool required = false;   // at least one call
  std::string named = {};  // exactly one, of this tool
  bool one = false;        // at most one
};

struct Tools {
  boost::json::array offered;        // as the template gets them; empty: none
  std::set<std::string> strict;      // names of those whose schema has to be enforced
  std::vector<std::string> dropped;  // "web_search": types that only a hosted service could run (rule B8)
  CallRule rule = {};
};

// Reads tools, tool_choice and parallel_tool_calls; faults go to `fields`.
Tools read_tools(FieldReader& fields);
// The same of Anthropic's form: {"name", "description", "input_schema"}, tool_choice
// {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"}.
Tools read_message_tools(FieldReader& fields);

// What all dialects ask of a tool in the form {"type":"function","function":{"name", "description",
// "parameters"}}: adds it, or says what is wrong with it. where: of the function, "tools[0].function.".
void offer(FieldReader& fields, boost::json::object tool, const std::string& where, bool strict,
           Tools& tools);
// And of a choice that forces a call. name: empty if any tool will do.
void force_call(FieldReader& fields, Tools& tools, std::string_view name);

}  // namespace strata::gateway
