#pragma once
// How a fault travels inside the engine: as an exception from any depth of the template to parse() or
// render(), which make a Status of it. It never leaves the engine.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "services/base/status.h"

namespace strata::chat_template {

struct TemplateError {
  Code code = Code::kInvalidArgument;
  std::string message;
  uint32_t line = 0;  // 0: the line that the interpreter is at
};

template <class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> text, Args&&... args) {
  throw TemplateError{Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...), 0};
}

template <class... Args>
[[noreturn]] void raise_at(uint32_t line, fmt::format_string<Args...> text, Args&&... args) {
  throw TemplateError{Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...), line};
}

}  // namespace strata::chat_template
