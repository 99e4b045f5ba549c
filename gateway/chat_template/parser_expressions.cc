#include <array>

#include "gateway/chat_template/error.h"
#include "gateway/chat_template/number_text.h"
#include "gateway/chat_template/parser.h"

namespace strata::chat_template {
namespace {

using Kind = Token::Kind;

struct OperatorSpelling {
  std::string_view text;
  Operator op;
};
constexpr std::array kComparisons = {
    OperatorSpelling{"==", Operator::kEqual},  OperatorSpelling{"!=", Operator::kNotEqual},
    OperatorSpelling{"<", Operator::kLess},    OperatorSpelling{"<=", Operator::kLessEqual},
    OperatorSpelling{">", Operator::kGreater}, OperatorSpelling{">=", Operator::kGreaterEqual},
};
constexpr std::array kSums = {OperatorSpelling{"+", Operator::kAdd},
                              OperatorSpelling{"-", Operator::kSubtract}};
constexpr std::array kProducts = {
    OperatorSpelling{"*", Operator::kMultiply},
    OperatorSpelling{"/", Operator::kDivide},
    OperatorSpelling{"//", Operator::kFloorDivide},
    OperatorSpelling{"%", Operator::kModulo},
};
constexpr std::array kPowers = {OperatorSpelling{"**", Operator::kPower}};

template <class Spellings>
const OperatorSpelling* find_spelling(const Spellings& spellings, const Token& token) {
  if (token.kind != Kind::kOperator) return nullptr;
  for (const OperatorSpelling& spelling : spellings) {
    if (spelling.text == token.text) return &spelling;
  }
  return nullptr;
}

Value parse_number(const Token& token) {
  if (token.kind == Kind::kFloat) return Value::number(parse_float(token.text).value_or(0.0));
  unsigned base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char letter = token.text[1];
    if (letter == 'x' || letter == 'X') base = 16;
    if (letter == 'o' || letter == 'O') base = 8;
    if (letter == 'b' || letter == 'B') base = 2;
  }
  const auto value = parse_int(token.text, base);
  if (!value) raise_at(token.line, "{} is no integer that fits", token.text);
  return Value::integer(*value);
}

}  // namespace

ExpressionPtr Parser::binary(uint32_t line, Operator op, ExpressionPtr left, ExpressionPtr right) {
  return std::make_unique<BinaryExpression>(line, op, std::move(left), std::move(right));
}

// A chain like a + b + c is a tree as deep as it is long, so chains count as nesting does.
void Parser::count_operator() {
  if (++operators_ > kOperatorsMax)
    raise_at(current().line, "an expression of more than {} operators", kOperatorsMax);
}

ExpressionPtr Parser::parse_expression() {
  const Nesting nesting(*this);
  const uint32_t line = current().line;
  ExpressionPtr value = parse_or();
  while (skip_name("if")) {
    count_operator();
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = std::make_unique<ConditionalExpression>(line, std::move(test), std::move(value),
                                                    std::move(otherwise));
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  const uint32_t line = current().line;
  ExpressionPtr left = parse_and();
  while (skip_name("or")) {
    count_operator();
    left = std::make_unique<LogicalExpression>(line, false, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  const uint32_t line = current().line;
  ExpressionPtr left = parse_not();
  while (skip_name("and")) {
    count_operator();
    left = std::make_unique<LogicalExpression>(line, true, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  const uint32_t line = current().line;
  if (!is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  take();
  return std::make_unique<NotExpression>(line, parse_not());
}

ExpressionPtr Parser::parse_comparison() {
  auto comparison = std::make_unique<ComparisonExpression>(current().line);
  comparison->first = parse_sum();
  while (true) {
    if (const auto* spelling = find_spelling(kComparisons, current())) {
      take();
      comparison->rest.emplace_back(spelling->op, parse_sum());
    } else if (skip_name("in")) {
      comparison->rest.emplace_back(Operator::kIn, parse_sum());
    } else if (is_name("not") && next().kind == Kind::kName && next().text == "in") {
      take();
      take();
      comparison->rest.emplace_back(Operator::kNotIn, parse_sum());
    } else {
      break;
    }
  }
  if (comparison->rest.empty()) return std::move(comparison->first);
  return comparison;
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (const auto* spelling = find_spelling(kSums, current())) {
    count_operator();
    const uint32_t line = take().line;
    left = binary(line, spelling->op, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  auto concat = std::make_unique<ConcatExpression>(current().line);
  concat->parts.push_back(parse_product());
  while (skip_operator("~")) concat->parts.push_back(parse_product());
  if (concat->parts.size() == 1) return std::move(concat->parts[0]);
  return concat;
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (const auto* spelling = find_spelling(kProducts, current())) {
    count_operator();
    const uint32_t line = take().line;
    left = binary(line, spelling->op, std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (const auto* spelling = find_spelling(kPowers, current())) {
    count_operator();
    const uint32_t line = take().line;
    left = binary(line, spelling->op, std::move(left), parse_unary(true));
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const uint32_t line = current().line;
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    const Nesting nesting(*this);
    const bool negative = take().text == "-";
    value = std::make_unique<SignExpression>(line, negative, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
  const uint32_t line = current().line;
  switch (current().kind) {
    case Kind::kName: {
      const std::string name = take().text;
      if (name == "true" || name == "True")
        return std::make_unique<ConstantExpression>(line, Value::boolean(true));
      if (name == "false" || name == "False")
        return std::make_unique<ConstantExpression>(line, Value::boolean(false));
      if (name == "none" || name == "None") return std::make_unique<ConstantExpression>(line, Value::none());
      if (!macros_.empty()) {
        MacroSignature& macro = *macros_.back();
        if (name == "caller") macro.takes_caller = true;
        if (name == "varargs") macro.takes_more_positional = true;
        if (name == "kwargs") macro.takes_more_named = true;
      }
      return std::make_unique<NameExpression>(line, name_of(name));
    }
    case Kind::kString: {
      std::string text = take().text;
      while (current().kind == Kind::kString) text += take().text;
      return std::make_unique<ConstantExpression>(line, Value::literal(text));
    }
    case Kind::kInteger:
    case Kind::kFloat:
      return std::make_unique<ConstantExpression>(line, parse_number(take()));
    default:
      break;
  }
  if (skip_operator("(")) {
    ExpressionPtr value = parse_tuple(/*with_conditions=*/true, /*in_parentheses=*/true);
    expect_operator(")");
    return value;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  unexpected("an expression");
}

ExpressionPtr Parser::parse_list() {
  auto list = std::make_unique<SequenceExpression>(current().line);
  expect_operator("[");
  while (!is_operator("]")) {
    list->items.push_back(parse_expression());
    if (!is_operator("]")) expect_operator(",");
  }
  expect_operator("]");
  return list;
}

ExpressionPtr Parser::parse_dict() {
  auto dict = std::make_unique<DictExpression>(current().line);
  expect_operator("{");
  while (!is_operator("}")) {
    ExpressionPtr key = parse_expression();
    expect_operator(":");
    dict->entries.emplace_back(std::move(key), parse_expression());
    if (!is_operator("}")) expect_operator(",");
  }
  expect_operator("}");
  return dict;
}

bool Parser::at_tuple_end() const {
  return current().kind == Kind::kVariableEnd || current().kind == Kind::kBlockEnd || is_operator(")");
}

ExpressionPtr Parser::parse_tuple(bool with_conditions, bool in_parentheses) {
  auto tuple = std::make_unique<SequenceExpression>(current().line);
  tuple->kind = Sequence::Kind::kTuple;
  bool comma = false;
  while (!at_tuple_end()) {
    tuple->items.push_back(with_conditions ? parse_expression() : parse_or());
    comma = skip_operator(",");
    if (!comma) break;
  }
  if (tuple->items.size() == 1 && !comma) return std::move(tuple->items[0]);
  if (tuple->items.empty() && !in_parentheses) unexpected("an expression");
  return tuple;
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      object = parse_subscript(std::move(object));
    } else if (is_operator("(")) {
      object = parse_call(std::move(object));
    } else {
      return object;
    }
    count_operator();
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (is_operator("|")) {
      input = parse_filter_chain(std::move(input), /*first_is_named=*/false);
    } else if (is_name("is")) {
      input = parse_test(std::move(input));
    } else if (is_operator("(")) {
      input = parse_call(std::move(input));
    } else {
      return input;
    }
    count_operator();
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  const uint32_t line = current().line;
  if (skip_operator(".")) {
    if (current().kind == Kind::kName)
      return std::make_unique<AttributeExpression>(line, std::move(object), take().text);
    if (current().kind != Kind::kInteger) unexpected("a name or a number");
    auto key = std::make_unique<ConstantExpression>(line, parse_number(take()));
    return std::make_unique<ItemExpression>(line, std::move(object), std::move(key));
  }
  expect_operator("[");
  ExpressionPtr begin = is_operator(":") ? nullptr : parse_expression();
  if (!is_operator(":")) {
    if (is_operator(",")) {  // a[1, 2]: the key is a tuple
      auto tuple = std::make_unique<SequenceExpression>(line);
      tuple->kind = Sequence::Kind::kTuple;
      tuple->items.push_back(std::move(begin));
      while (skip_operator(",") && !is_operator("]")) tuple->items.push_back(parse_expression());
      begin = std::move(tuple);
    }
    expect_operator("]");
    return std::make_unique<ItemExpression>(line, std::move(object), std::move(begin));
  }
  auto slice = std::make_unique<SliceExpression>(line);
  slice->object = std::move(object);
  slice->begin = std::move(begin);
  expect_operator(":");
  if (!is_operator(":") && !is_operator("]")) slice->end = parse_expression();
  if (skip_operator(":") && !is_operator("]")) slice->step = parse_expression();
  expect_operator("]");
  return slice;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (skip_operator(".")) name += fmt::format(".{}", expect_identifier());
  return name;
}

ExpressionPtr Parser::parse_filter_chain(ExpressionPtr input, bool first_is_named) {
  while (first_is_named || skip_operator("|")) {
    count_operator();
    first_is_named = false;
    auto filter = std::make_unique<FilterExpression>(current().line);
    filter->input = std::move(input);
    filter->name = parse_dotted_name();
    if (is_operator("(")) filter->arguments = parse_arguments();
    input = std::move(filter);
  }
  return input;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  const uint32_t line = current().line;
  expect_name("is");
  const bool negated = skip_name("not");
  auto test = std::make_unique<TestExpression>(line);
  test->input = std::move(input);
  test->name = parse_dotted_name();
  if (is_operator("(")) {
    test->arguments = parse_arguments();
  } else if (is_name("is")) {
    raise_at(line, "tests cannot be chained with \"is\"");
  } else {
    const Kind kind = current().kind;
    const bool name = kind == Kind::kName && !is_name("else") && !is_name("or") && !is_name("and");
    if (name || kind == Kind::kString || kind == Kind::kInteger || kind == Kind::kFloat || is_operator("[") ||
        is_operator("{")) {
      const Nesting nesting(*this);
      test->arguments.positional.push_back(parse_postfix(parse_primary()));
    }
  }
  if (negated) return std::make_unique<NotExpression>(line, std::move(test));
  return test;
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  auto call = std::make_unique<CallExpression>(current().line);
  call->callee = std::move(callee);
  call->arguments = parse_arguments();
  return call;
}

CallArguments Parser::parse_arguments() {
  CallArguments arguments;
  expect_operator("(");
  while (!is_operator(")")) {
    if (skip_operator("*")) {
      if (arguments.more_positional || arguments.more_named) unexpected("one *list at most");
      arguments.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      if (arguments.more_named) unexpected("one **dict at most");
      arguments.more_named = parse_expression();
    } else if (current().kind == Kind::kName && next().kind == Kind::kOperator && next().text == "=") {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty() || arguments.more_positional || arguments.more_named)
        unexpected("a named argument");
      arguments.positional.push_back(parse_expression());
    }
    if (!is_operator(")")) expect_operator(",");
  }
  expect_operator(")");
  return arguments;
}

}  // namespace strata::chat_template
