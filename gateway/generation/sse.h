#pragma once
// Server-sent events as bytes. JSON never holds a line break, so one data line is enough.

#include <string>
#include <string_view>

namespace strata::gateway {

inline std::string sse_data(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

inline std::string sse_event(std::string_view name, std::string_view json) {
  return "event: " + std::string(name) + "\n" + sse_data(json);
}

}  // namespace strata::gateway
