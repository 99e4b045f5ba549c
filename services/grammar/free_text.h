#pragma once
// Text that goes on until a marker: a parameter until it is closed.

#include <string_view>

#include "services/grammar/rules.h"

namespace strata::grammar {

struct FreeText {
  std::string_view marker;  // ASCII, not empty
  NodeId behind = 0;        // what follows the marker
};

// Any text without the marker inside, then the marker and what is behind it. One automaton: a rule for each
// beginning of the marker that can have been read (Knuth, Morris and Pratt's).
NodeId add_free_text(Rules& rules, const FreeText& text);

}  // namespace strata::grammar
