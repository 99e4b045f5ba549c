#pragma once
// Python's two ways to format strings. What is put in keeps its own origin.

#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {

// "%s and %d" % values: a tuple gives one value per conversion, a mapping serves %(name)s, anything else is
// the one value.
MarkedText format_percent(Interpreter& run, const MarkedText& pattern, const Value& values);

// "{} and {name:>8.2f}".format(...)
MarkedText format_braces(Interpreter& run, const MarkedText& pattern, const Arguments& arguments);

}  // namespace strata::chat_template
