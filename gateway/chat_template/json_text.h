#pragma once
// The tojson filter: JSON as Python's json.dumps() writes it, which is what models saw in training.

#include <optional>

#include "gateway/chat_template/value.h"

namespace strata::chat_template {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<MarkedText> indent;  // of one level; absent: all in one line
  MarkedText item_separator;
  MarkedText key_separator;
};

MarkedText to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace strata::chat_template
