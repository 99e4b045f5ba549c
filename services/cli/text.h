#pragma once
// How commands write times.

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace strata::cli {

// "12s", "3m05s", "2h07m"
inline std::string duration_text(double seconds) {
  const auto total = static_cast<uint64_t>(seconds);
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
}

}  // namespace strata::cli
