#pragma once
// Structured logging. One line per event in JSON (properly escaped); in text, further lines of a message are
// indented. Never the content of a conversation (rule I7).
//
//   obs::info("exchange", "slot {} now holds layer {} expert {}", slot, layer, expert);
//
// The first argument is the subsystem. Not for the window loop or the expert pool: those post to somebody who
// logs.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "services/base/status.h"

namespace strata::obs {

enum class Level { kDebug, kInfo, kWarn, kError };

struct LogOptions {
  std::string process;  // "gateway"
  Level level = Level::kInfo;
  bool json = false;
};

// Once in main(), before threads. Output goes to standard error. Without it, warnings and errors are printed
// as text.
void init_log(const LogOptions& options);
bool log_enabled(Level level);
void log_line(Level level, std::string_view subsystem, std::string_view message);

template <class... Args>
void log(Level level, std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, subsystem, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(Level::kDebug, subsystem, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(Level::kInfo, subsystem, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(Level::kWarn, subsystem, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(std::string_view subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(Level::kError, subsystem, format, std::forward<Args>(args)...);
}

}  // namespace strata::obs
