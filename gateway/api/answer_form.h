#pragma once
// What the text of an answer has to look like: response_format and its relatives in the other dialects, and
// llama.cpp's json_schema and grammar. Schema and grammar are not looked into here
// (gateway/service/answer_grammar.h).

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/api/field_reader.h"

namespace strata::gateway {

struct AnswerForm {
  enum class Kind : uint8_t {
    kText,     // anything
    kObject,   // any JSON object
    kSchema,   // source: a JSON schema, as text
    kGrammar,  // source: GBNF
  };
  Kind kind = Kind::kText;
  std::string source = {};
  std::string param = {};  // the field that asked for it, for errors

  bool is_json() const { return kind == Kind::kObject || kind == Kind::kSchema; }
};

// The field `name`: {"type": "text"}, {"type": "json_object"} or {"type": "json_schema"} with the schema in
// the member "json_schema" (chat's response_format) or beside the type (text.format of responses, Anthropic's
// output_format). Whatever "strict" says, the answer is held to the schema (rule B18). Faults go to `fields`.
AnswerForm read_format(FieldReader& fields, std::string_view name);

// Of a body of chat or text completions: response_format, json_schema and grammar, of which one may say
// something.
AnswerForm read_answer_form(FieldReader& fields);

// Of a body in Anthropic's dialect: output_format, or output_config.format.
AnswerForm read_message_form(FieldReader& fields);

}  // namespace strata::gateway
