#include <algorithm>

#include "gateway/chat_template/error.h"
#include "gateway/chat_template/parser.h"

namespace strata::chat_template {
namespace {

using Kind = Token::Kind;

std::string_view describe(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kData:
      return "text";
    case Kind::kVariableEnd:
      return "}}";
    case Kind::kBlockEnd:
      return "%}";
    default:
      return token.text;
  }
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser_.depth_ == kNestingMax) {
    raise_at(parser_.current().line, "nested more than {} levels deep", kNestingMax);
  }
  ++parser_.depth_;
}

Token Parser::take() {
  Token token = std::move(tokens_[at_]);
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_operator(std::string_view text) const {
  return current().kind == Kind::kOperator && current().text == text;
}
bool Parser::is_name(std::string_view text) const {
  return current().kind == Kind::kName && current().text == text;
}

bool Parser::skip_operator(std::string_view text) {
  const bool found = is_operator(text);
  if (found) take();
  return found;
}

bool Parser::skip_name(std::string_view text) {
  const bool found = is_name(text);
  if (found) take();
  return found;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected(fmt::format("'{}'", text));
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) unexpected(fmt::format("'{}'", text));
}

std::string Parser::expect_identifier() {
  if (current().kind != Kind::kName) unexpected("a name");
  return take().text;
}

void Parser::unexpected(std::string_view expected) const {
  raise_at(current().line, "unexpected '{}', expected {}", describe(current()), expected);
}

Name Parser::name_of(const std::string& text) {
  const auto [at, added] = numbers_.emplace(text, static_cast<Name>(names_.size()));
  if (added) names_.push_back(text);
  return at->second;
}

Program Parser::parse() {
  Block body = parse_block({});
  return {std::move(names_), std::move(body)};
}

Block Parser::parse_block(EndTags end_tags) {
  const Nesting nesting(*this);
  Block block;
  while (current().kind != Kind::kEnd) {
    const uint32_t line = current().line;
    operators_ = 0;
    if (current().kind == Kind::kData) {
      block.push_back(std::make_unique<DataStatement>(line, take().text));
    } else if (current().kind == Kind::kVariableBegin) {
      take();
      block.push_back(std::make_unique<PrintStatement>(
          line, parse_tuple(/*with_conditions=*/true, /*in_parentheses=*/false)));
      if (current().kind != Kind::kVariableEnd) unexpected("'}}'");
      take();
    } else {
      take();  // {%
      if (current().kind != Kind::kName) unexpected("the name of a tag");
      if (std::find(end_tags.begin(), end_tags.end(), current().text) != end_tags.end()) return block;
      block.push_back(parse_statement());
      if (current().kind != Kind::kBlockEnd) unexpected("'%}'");
      take();
    }
  }
  if (end_tags.size() > 0) unexpected(fmt::format("{{% {} %}}", *(end_tags.end() - 1)));
  return block;
}

Block Parser::parse_body(EndTags end_tags) {
  if (current().kind != Kind::kBlockEnd) unexpected("'%}'");
  take();
  return parse_block(end_tags);
}

std::unique_ptr<const Statement> Parser::parse_statement() {
  const uint32_t line = current().line;
  const std::string tag = take().text;
  if (tag == "if") return parse_if(line);
  if (tag == "for") return parse_for(line);
  if (tag == "set") return parse_set(line);
  if (tag == "macro") return parse_macro(line);
  if (tag == "call") return parse_call_block(line);
  if (tag == "filter") return parse_filter_block(line);
  if (tag == "with") return parse_with(line);
  if (tag == "generation") return parse_generation(line);
  if (tag == "break") return parse_jump(line, Flow::kBreak);
  if (tag == "continue") return parse_jump(line, Flow::kContinue);
  raise_at(line, "unknown tag '{}'", tag);
}

std::unique_ptr<const Statement> Parser::parse_if(uint32_t line) {
  auto statement = std::make_unique<IfStatement>(line);
  while (true) {
    ExpressionPtr test = parse_tuple(/*with_conditions=*/false, /*in_parentheses=*/false);
    Block body = parse_body({"elif", "else", "endif"});
    statement->branches.emplace_back(std::move(test), std::move(body));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) statement->otherwise = parse_body({"endif"});
  expect_name("endif");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_for(uint32_t line) {
  auto statement = std::make_unique<ForStatement>(line);
  statement->target = parse_target(/*may_be_attribute=*/false);
  expect_name("in");
  statement->items = parse_tuple(/*with_conditions=*/false, /*in_parentheses=*/false);
  if (skip_name("if")) statement->filter = parse_expression();
  if (is_name("recursive")) raise_at(line, "recursive loops are not supported");
  statement->loop_name = name_of("loop");
  ++loops_;
  statement->body = parse_body({"else", "endfor"});
  --loops_;
  if (skip_name("else")) statement->otherwise = parse_body({"endfor"});
  expect_name("endfor");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_set(uint32_t line) {
  Target target = parse_target(/*may_be_attribute=*/true);
  if (skip_operator("=")) {
    auto statement = std::make_unique<SetStatement>(line);
    statement->target = std::move(target);
    statement->value = parse_tuple(/*with_conditions=*/true, /*in_parentheses=*/false);
    return statement;
  }
  auto statement = std::make_unique<SetBlockStatement>(line);
  statement->target = std::move(target);
  statement->filter = parse_filter_chain(nullptr, /*first_is_named=*/false);
  statement->body = parse_body({"endset"});
  expect_name("endset");
  return statement;
}

void Parser::parse_parameters(MacroSignature& signature) {
  expect_operator("(");
  while (!is_operator(")")) {
    const Name name = name_of(expect_identifier());
    ExpressionPtr value;
    if (skip_operator("=")) {
      value = parse_expression();
    } else if (!signature.parameters.empty() && signature.parameters.back().second != nullptr) {
      unexpected("a default, as the parameter before has one");
    }
    signature.parameters.emplace_back(name, std::move(value));
    if (!is_operator(")")) expect_operator(",");
  }
  expect_operator(")");
}

Block Parser::parse_macro_body(MacroSignature& signature, std::string_view end_tag) {
  macros_.push_back(&signature);
  const uint32_t loops_outside = std::exchange(loops_, 0);
  Block body = parse_body({end_tag});
  loops_ = loops_outside;
  macros_.pop_back();
  expect_name(end_tag);
  return body;
}

std::unique_ptr<const Statement> Parser::parse_macro(uint32_t line) {
  auto statement = std::make_unique<MacroStatement>(line);
  statement->signature.name = expect_identifier();
  statement->name = name_of(statement->signature.name);
  parse_parameters(statement->signature);
  statement->body = parse_macro_body(statement->signature, "endmacro");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_call_block(uint32_t line) {
  auto statement = std::make_unique<CallStatement>(line);
  statement->signature.name = "caller";
  if (is_operator("(")) parse_parameters(statement->signature);
  ExpressionPtr called = parse_unary(/*with_filters=*/false);
  const auto* call = dynamic_cast<const CallExpression*>(called.get());
  if (call == nullptr) raise_at(line, "expected a call");
  called.release();
  statement->call.reset(call);
  statement->body = parse_macro_body(statement->signature, "endcall");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_filter_block(uint32_t line) {
  auto statement = std::make_unique<FilterStatement>(line);
  statement->filter = parse_filter_chain(nullptr, /*first_is_named=*/true);
  statement->body = parse_body({"endfilter"});
  expect_name("endfilter");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_with(uint32_t line) {
  auto statement = std::make_unique<WithStatement>(line);
  while (current().kind != Kind::kBlockEnd) {
    if (!statement->variables.empty()) expect_operator(",");
    Target target = parse_target(/*may_be_attribute=*/false);
    expect_operator("=");
    statement->variables.emplace_back(std::move(target), parse_expression());
  }
  statement->body = parse_body({"endwith"});
  expect_name("endwith");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_generation(uint32_t line) {
  auto statement = std::make_unique<GroupStatement>(line);
  statement->body = parse_body({"endgeneration"});
  expect_name("endgeneration");
  return statement;
}

std::unique_ptr<const Statement> Parser::parse_jump(uint32_t line, Flow flow) {
  if (loops_ == 0) raise_at(line, "'{}' outside of a loop", flow == Flow::kBreak ? "break" : "continue");
  return std::make_unique<JumpStatement>(line, flow);
}

Target Parser::parse_target(bool may_be_attribute) {
  Target first = parse_target_part(may_be_attribute);
  if (!is_operator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = first.line;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",") && (current().kind == Kind::kName || is_operator("(")) && !is_name("in")) {
    tuple.parts.push_back(parse_target_part(may_be_attribute));
  }
  return tuple;
}

Target Parser::parse_target_part(bool may_be_attribute) {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    Target inner = parse_target(may_be_attribute);
    expect_operator(")");
    return inner;
  }
  Target target;
  target.line = current().line;
  const std::string name = expect_identifier();
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) raise_at(target.line, "cannot assign to '{}'", name);
  }
  target.name = name_of(name);
  if (may_be_attribute && skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.attribute = expect_identifier();
  }
  return target;
}

}  // namespace strata::chat_template
