#pragma once
// Tokens -> tree, by recursive descent. The grammar is Jinja's, precedences included (a filter binds tighter
// than a sign, `~` tighter than `+`).

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gateway/chat_template/ast.h"
#include "gateway/chat_template/expressions.h"
#include "gateway/chat_template/lexer.h"
#include "gateway/chat_template/statements.h"

namespace strata::chat_template {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Program parse();

 private:
  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  std::string expect_identifier();
  [[noreturn]] void unexpected(std::string_view expected) const;
  Name name_of(const std::string& text);

  // Nesting is bounded here, so that neither parsing nor running nor freeing the tree can exhaust the stack.
  static constexpr uint32_t kNestingMax = 100;
  static constexpr uint32_t kOperatorsMax = 1000;
  class Nesting;
  uint32_t depth_ = 0;
  uint32_t operators_ = 0;  // of the tag being parsed

  // Statements (parser_statements.cc).
  using EndTags = std::initializer_list<std::string_view>;
  Block parse_block(EndTags end_tags);  // leaves the name of the end tag as the current token
  Block parse_body(EndTags end_tags);   // from the end of the opening tag
  void end_block(std::string_view end_tag);
  std::unique_ptr<const Statement> parse_statement();
  std::unique_ptr<const Statement> parse_if(uint32_t line);
  std::unique_ptr<const Statement> parse_for(uint32_t line);
  std::unique_ptr<const Statement> parse_set(uint32_t line);
  std::unique_ptr<const Statement> parse_macro(uint32_t line);
  std::unique_ptr<const Statement> parse_call_block(uint32_t line);
  std::unique_ptr<const Statement> parse_filter_block(uint32_t line);
  std::unique_ptr<const Statement> parse_with(uint32_t line);
  std::unique_ptr<const Statement> parse_generation(uint32_t line);
  std::unique_ptr<const Statement> parse_jump(uint32_t line, Flow flow);
  void parse_parameters(MacroSignature& signature);
  Block parse_macro_body(MacroSignature& signature, std::string_view end_tag);
  Target parse_target(bool may_be_attribute);
  Target parse_target_part(bool may_be_attribute);

  // Expressions (parser_expressions.cc).
  ExpressionPtr parse_expression();  // with `if` ... `else`
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  // Comma-separated expressions: one of them alone is itself, unless a comma follows.
  ExpressionPtr parse_tuple(bool with_conditions, bool in_parentheses);
  bool at_tuple_end() const;
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_filter_chain(ExpressionPtr input, bool first_is_named);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_call(ExpressionPtr callee);
  CallArguments parse_arguments();
  std::string parse_dotted_name();
  ExpressionPtr binary(uint32_t line, Operator op, ExpressionPtr left, ExpressionPtr right);
  void count_operator();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, Name> numbers_;
  std::vector<MacroSignature*> macros_;  // the ones being parsed, innermost last
  uint32_t loops_ = 0;                   // enclosing ones, within the macro being parsed
};

class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser);
  ~Nesting() { --parser_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace strata::chat_template
