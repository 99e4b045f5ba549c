#pragma once
// Regular expressions of JSON schema ("pattern"): the subset of ECMA 262 that describes regular languages.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/code_points.h"
#include "services/grammar/rules.h"

namespace strata::grammar {

struct Regex {
  enum class Kind : uint8_t {
    kSet,       // one character out of set; an empty set matches nothing
    kSequence,  // of parts; none: the empty text
    kChoice,    // of parts
    kRepeat,    // parts[0], min to max times
    kBegin,     // ^
    kEnd,       // $
  };
  Kind kind = Kind::kSequence;
  CodePoints set = {};
  std::vector<Regex> parts = {};
  uint32_t min = 1, max = 1;
};

// The expression for texts that match as a whole: what is not anchored may have any text around it. Errors:
// kInvalidArgument "at 5: look-around is not supported" for syntax that is wrong or not in the subset,
// kResourceExhausted beyond limits.h.
Result<Regex> parse_regex(std::string_view pattern);

// How many characters a text that matches has; max may be kUnbounded.
struct RegexLength {
  uint64_t min = 0, max = 0;
};
RegexLength length_of(const Regex& regex);

// As an expression of rules; `write_set` says how characters are written in the text to be generated.
NodeId add_regex(Rules& rules, const Regex& regex, const std::function<NodeId(const CodePoints&)>& write_set);

}  // namespace strata::grammar
