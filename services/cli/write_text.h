#pragma once
// A file that a command was asked for: a report, a drawing.

#include <fstream>
#include <string>

#include "services/base/status.h"

namespace strata::cli {

// Replaces what is there. kPermissionDenied: it cannot be written.
inline Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!(out << text).flush()) return fail(Code::kPermissionDenied, "{}: cannot be written", path);
  return {};
}

}  // namespace strata::cli
