#pragma once
// JSON Schema -> grammar: every text of the grammar is a JSON text that the schema accepts. The subset, and
// where the grammar is narrower than the schema (order of properties, one way of writing numbers ...), is in
// docs/grammar.md.

#include <string_view>

#include "services/base/status.h"
#include "services/grammar/json_rules.h"
#include "services/grammar/rules.h"

namespace strata::grammar {

// schema: a JSON text. Errors: kInvalidArgument `schema at #/properties/age: "multipleOf" is not supported`
// for what is no schema or not in the subset; kResourceExhausted beyond limits.h.
Result<Rules> rules_of_schema(std::string_view schema, Whitespace whitespace = Whitespace::kSingle);

// Any JSON object, the "json_object" response format.
Rules rules_of_any_object(Whitespace whitespace = Whitespace::kFlexible);

}  // namespace strata::grammar
