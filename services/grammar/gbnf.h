#pragma once
// Reads GBNF, the grammar notation that users of llama.cpp know (docs/grammar.md has the notation).

#include <string_view>

#include "services/base/status.h"
#include "services/grammar/rules.h"

namespace strata::grammar {

// The root is the rule called "root". Errors: kInvalidArgument "grammar, line 3, column 7: ..." for anything
// that cannot be read, an undefined or twice defined rule, no root; kResourceExhausted beyond limits.h.
Result<Rules> parse_gbnf(std::string_view text);

}  // namespace strata::grammar
