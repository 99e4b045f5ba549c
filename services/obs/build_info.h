#pragma once
// Which build this is: `strata version`, strata_build_info, the version of every --version.

#include <string_view>

namespace strata::obs {

std::string_view version();  // "0.1.0"
std::string_view commit();   // twelve hex digits, or "unknown" outside a git checkout

}  // namespace strata::obs
