#include "gateway/api/answer_form.h"

#include <fmt/format.h>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

AnswerForm schema_form(const boost::json::object& schema, std::string param) {
  return {.kind = AnswerForm::Kind::kSchema, .source = to_json(schema), .param = std::move(param)};
}

// described: the object that holds schema, name and strict.
AnswerForm read_described_schema(FieldReader& described, std::string param) {
  described.string("name");
  described.string("description");
  described.boolean("strict");
  const boost::json::object* schema = described.object("schema");
  if (schema == nullptr) {
    described.fail("schema", fmt::format("{} is missing", described.full_name("schema")));
    return {};
  }
  return schema_form(*schema, std::move(param));
}

AnswerForm read_one_format(FieldReader& nested, const boost::json::object& format, std::string param) {
  const std::string_view type = nested.string("type").value_or("");
  if (type == "json_object") {
    // Several servers take a schema here, and none of them means it to be overlooked.
    if (const boost::json::object* schema = nested.object("schema"))
      return schema_form(*schema, std::move(param));
    return {.kind = AnswerForm::Kind::kObject, .source = {}, .param = std::move(param)};
  }
  if (type == "json_schema") {
    const boost::json::object* inner = nested.object("json_schema");
    if (inner == nullptr) return read_described_schema(nested, std::move(param));
    FieldReader described(*inner, nested.full_name("json_schema."));
    AnswerForm form = read_described_schema(described, std::move(param));
    if (described.failed()) nested.fail(described.error().value());
    return form;
  }
  if (type != "text") {
    nested.fail("type", fmt::format("{} must be \"text\", \"json_object\" or \"json_schema\", got {}",
                                    nested.full_name("type"),
                                    format.contains("type") ? snippet(type) : std::string("nothing")));
  }
  return {};
}

}  // namespace

AnswerForm read_format(FieldReader& fields, std::string_view name) {
  const boost::json::object* format = fields.object(name);
  if (format == nullptr) return {};
  FieldReader nested(*format, fields.full_name(name) + ".");
  AnswerForm form = read_one_format(nested, *format, fields.full_name(name));
  if (nested.failed()) fields.fail(nested.error().value());
  return form;
}

AnswerForm read_answer_form(FieldReader& fields) {
  AnswerForm form = read_format(fields, "response_format");
  const auto take = [&](AnswerForm other) {
    if (form.kind != AnswerForm::Kind::kText) {
      fields.fail(other.param, fmt::format("{} and {} both say what the answer looks like; send one of them",
                                           form.param, other.param));
    }
    form = std::move(other);
  };
  if (const boost::json::object* schema = fields.object("json_schema"))
    take(schema_form(*schema, "json_schema"));
  if (const auto grammar = fields.string("grammar"); grammar && !grammar->empty()) {
    take({.kind = AnswerForm::Kind::kGrammar, .source = std::string(*grammar), .param = "grammar"});
  }
  return form;
}

AnswerForm read_message_form(FieldReader& fields) {
  AnswerForm form = read_format(fields, "output_format");
  const boost::json::object* config = fields.object("output_config");
  if (config == nullptr || form.kind != AnswerForm::Kind::kText) return form;
  FieldReader nested(*config, "output_config.");
  form = read_format(nested, "format");
  if (nested.failed()) fields.fail(nested.error().value());
  return form;
}

}  // namespace strata::gateway
