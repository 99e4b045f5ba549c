#pragma once
// CHECK(condition, "format", values...): a bug ends the process, in release builds too, with the condition, the values and
// the place on standard error. Never for things that can happen from outside (those are a Status).

#if defined(__CUDACC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1  // fmt 9 believes nvcc incapable of constexpr, and then uses consteval all the same
#endif
#include <fmt/format.h>

#include <source_location>
#include <string>

namespace strata {

[[noreturn]] void check_failed(const char* condition, const std::string& detail, std::source_location where);

}  // namespace strata

#define CHECK(condition, ...)                                                                        \
  do {                                                                                               \
    if (!(condition)) [[unlikely]]                                                                   \
      ::strata::check_failed(#condition, ::fmt::format("" __VA_ARGS__), std::source_location::current()); \
  } while (false)
