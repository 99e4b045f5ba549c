#pragma once
// The tools of a chat request and what tool_choice makes of them.

#include <boost/json/array.hpp>
#include <string>
#include <vector>

#include "gateway/api/field_reader.h"

namespace strata::gateway {

struct Tools {
  boost::json::array offered;        // as the template gets them; empty: none
  std::vector<std::string> dropped;  // "web_search": types that only a hosted service could run (rule B8)
};

// Reads tools, tool_choice and parallel_tool_calls; faults go to `fields`.
Tools read_tools(FieldReader& fields);

}  // namespace strata::gateway
