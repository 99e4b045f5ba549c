#pragma once
// What was built: the project's version and the commit it was configured at.

#include <string_view>

namespace strata {

std::string_view version();  // "0.1.0"
std::string_view commit();   // "fa197aa", or "unknown" outside a git checkout

}  // namespace strata
