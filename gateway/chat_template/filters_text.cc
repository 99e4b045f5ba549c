// Filters that make text.

#include <algorithm>

#include "gateway/chat_template/filter_support.h"
#include "gateway/chat_template/format.h"
#include "gateway/chat_template/json_text.h"

namespace strata::chat_template {
namespace {

Text text_of(Interpreter& run, const Value& value) { return to_shared_text(run.budget(), value); }

template <Case kForm>
Value in_case(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("case filter", std::move(arguments), {});
  return Value::string(change_case(run.budget(), *text_of(run, input), kForm), input.markup);
}

Value trim(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("trim", std::move(arguments), {"chars"});
  const auto chars = parameters.optional_text(0);
  const auto set = chars ? std::optional<std::string_view>(chars->text()) : std::nullopt;
  return Value::string(strip(run.budget(), *text_of(run, input), Side::kBoth, set), input.markup);
}

Value string(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("string", std::move(arguments), {});
  return input.is_string() ? input : Value::string(to_text(run.budget(), input));
}

Value safe(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("safe", std::move(arguments), {});
  return Value{text_of(run, input), Origin::kTemplate, true};
}

Value escape(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("escape", std::move(arguments), {});
  if (input.markup) return input;
  return Value::string(escape_html(run.budget(), *text_of(run, input)), true);
}

Value replace_text(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const bool limited = parameters.has(2) && !parameters.value(2).is_none();
  const Text old_text = text_of(run, parameters.value(0));
  const Text new_text = text_of(run, parameters.value(1));
  return Value::string(replace(run.budget(), *text_of(run, input), *old_text, *new_text,
                               limited ? parameters.integer_or(2, -1) : -1));
}

Value join(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("join", std::move(arguments), {"d", "attribute"});
  const Text separator = text_of(run, parameters.value_or(0, Value::literal("")));
  const auto path = parameters.has(1) ? std::optional<Value>(parameters.value(1)) : std::nullopt;
  TextBuilder out(run.budget());
  bool first = true;
  for (const Value& element : run.elements(input)) {
    if (!std::exchange(first, false)) out.append(*separator);
    out.append(*text_of(run, attribute_path(run, element, path)));
  }
  return Value::string(out.take());
}

Value indent(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("indent", std::move(arguments), {"width", "first", "blank"});
  const Value width = parameters.value_or(0, Value::integer(4));
  const MarkedText space =
      width.is_string() ? width.text()
                        : repeat(run.budget(), MarkedText(" ", Origin::kTemplate),
                                 static_cast<std::size_t>(std::max<long>(0, parameters.integer_or(0, 4))));
  const bool blank = parameters.flag_or(2, false);
  if (!input.is_string()) raise("indent needs a string, not {}", type_name(input));
  // With one more line end, so that one at the end of the text begins an empty line.
  MarkedText closed = input.text();
  closed.append("\n", Origin::kTemplate);
  const std::vector<MarkedText> lines = split_lines(run.budget(), closed, false);
  TextBuilder out(run.budget());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", Origin::kTemplate);
    const bool indented = i == 0 ? parameters.flag_or(1, false) : blank || !lines[i].empty();
    if (indented) out.append(space);
    out.append(lines[i]);
  }
  return Value::string(out.take(), input.markup);
}

Value center(Interpreter& run, const Value& input, Arguments arguments) {
  const Method method = find_method(Value::literal(""), "center");
  if (arguments.positional.empty() && arguments.named.empty())
    arguments.positional.push_back(Value::integer(80));
  return method(run, Value{text_of(run, input)}, std::move(arguments));
}

Value format(Interpreter& run, const Value& input, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    raise("format takes positional or named arguments, not both");
  if (arguments.named.empty()) {
    return Value::string(
        format_percent(run, *text_of(run, input), run.heap().tuple(std::move(arguments.positional))));
  }
  auto* dict = run.heap().make<Dict>();
  for (auto& [name, value] : arguments.named) dict->set(Value::literal(name), std::move(value));
  return Value::string(format_percent(run, *text_of(run, input), {dict}));
}

Value tojson(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("tojson", std::move(arguments),
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = parameters.flag_or(0, false);
  style.sort_keys = parameters.flag_or(3, false);
  if (parameters.has(1) && parameters.value(1).is_string()) {
    style.indent = parameters.text(1);
  } else if (parameters.has(1) && !parameters.value(1).is_none()) {
    const auto width = static_cast<std::size_t>(std::max<long>(0, parameters.integer_or(1, 0)));
    style.indent = repeat(run.budget(), MarkedText(" ", Origin::kTemplate), width);
  }
  style.item_separator = MarkedText(style.indent ? "," : ", ", Origin::kTemplate);
  style.key_separator = MarkedText(": ", Origin::kTemplate);
  if (parameters.has(2) && !parameters.value(2).is_none()) {
    const std::vector<Value> separators = run.elements(parameters.value(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      raise("tojson(): 'separators' must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value::string(to_json(run.budget(), input, style));
}

}  // namespace

const FilterTable& text_filters() {
  static const FilterTable table = {
      {"upper", in_case<Case::kUpper>},
      {"lower", in_case<Case::kLower>},
      {"title", in_case<Case::kTitleOfFilter>},
      {"capitalize", in_case<Case::kCapitalized>},
      {"trim", trim},
      {"string", string},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"replace", replace_text},
      {"join", join},
      {"indent", indent},
      {"center", center},
      {"format", format},
      {"tojson", tojson},
  };
  return table;
}

}  // namespace strata::chat_template
