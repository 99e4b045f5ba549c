#include "services/obs/log.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>

namespace strata::obs {

namespace {

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::info:
      return "info";
    case spdlog::level::warn:
      return "warn";
    default:
      return "error";
  }
}

// Length of the well-formed UTF-8 sequence at the front of text; 0: the first byte does not begin one.
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  std::size_t length = first < 0x80   ? 1
                       : first < 0xC2 ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values beyond U+10FFFF show in the second byte.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

// Whatever the message holds, JSON stays JSON on one line, and a line of text cannot pass for the beginning
// of another event: control characters are escaped, further lines are indented, and bytes that are not UTF-8
// become U+FFFD.
void append_escaped(spdlog::memory_buf_t& out, std::string_view text, bool json) {
  auto to = fmt::appender(out);
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      fmt::format_to(to, "\xEF\xBF\xBD");
      length = 1;
    } else if (json && (c == '"' || c == '\\')) {
      fmt::format_to(to, "\\{}", static_cast<char>(c));
    } else if (c == '\n') {
      fmt::format_to(to, "{}", json ? "\\n" : "\n    ");
    } else if (c == '\t') {
      fmt::format_to(to, "\\t");
    } else if (c < 0x20 || c == 0x7F) {
      fmt::format_to(to, "\\u{:04x}", c);
    } else {
      out.append(text.data(), text.data() + length);
    }
    text.remove_prefix(length);
  }
}

class LineFormatter final : public spdlog::formatter {
 public:
  LineFormatter(std::string process, bool json) : process_(std::move(process)), json_(json) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    auto since_epoch =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch()).count();
    std::time_t seconds = since_epoch / 1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    auto to = fmt::appender(out);
    if (json_) fmt::format_to(to, "{{\"time\":\"");
    fmt::format_to(to, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                   utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, since_epoch % 1000);
    std::string_view subsystem(message.logger_name.data(), message.logger_name.size());
    std::string_view text(message.payload.data(), message.payload.size());
    if (json_) {
      fmt::format_to(to, "\",\"level\":\"{}\",\"process\":\"", level_name(message.level));
      append_escaped(out, process_, true);
      fmt::format_to(to, "\",\"subsystem\":\"");
      append_escaped(out, subsystem, true);
      fmt::format_to(to, "\",\"message\":\"");
      append_escaped(out, text, true);
      fmt::format_to(to, "\"}}\n");
    } else {
      fmt::format_to(to, " {:5} ", level_name(message.level));
      if (!process_.empty()) fmt::format_to(to, "{} ", process_);
      append_escaped(out, subsystem, false);
      fmt::format_to(to, ": ");
      append_escaped(out, text, false);
      fmt::format_to(to, "\n");
    }
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(process_, json_);
  }

 private:
  std::string process_;
  bool json_;
};

std::atomic<int> least_level{static_cast<int>(Level::kWarn)};

// Never destroyed: objects with static lifetime may log while the process ends.
spdlog::sinks::stderr_sink_mt& sink() {
  static auto* the_sink = [] {
    auto* made = new spdlog::sinks::stderr_sink_mt();
    made->set_formatter(std::make_unique<LineFormatter>("", false));
    return made;
  }();
  return *the_sink;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void init_log(const LogOptions& options) {
  sink().set_formatter(std::make_unique<LineFormatter>(options.process, options.json));
  least_level.store(static_cast<int>(options.level), std::memory_order_relaxed);
}

bool log_enabled(Level level) {
  return static_cast<int>(level) >= least_level.load(std::memory_order_relaxed);
}

void log_line(Level level, std::string_view subsystem, std::string_view message) {
  spdlog::details::log_msg event(spdlog::string_view_t(subsystem.data(), subsystem.size()), to_spdlog(level),
                                 spdlog::string_view_t(message.data(), message.size()));
  sink().log(event);
}

}  // namespace strata::obs
