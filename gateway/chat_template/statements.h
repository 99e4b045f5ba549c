#pragma once
// The statements of the language.

#include "gateway/chat_template/ast.h"
#include "gateway/chat_template/expressions.h"

namespace strata::chat_template {

struct DataStatement final : Statement {
  DataStatement(uint32_t at, std::string literal) : Statement(at), text(std::move(literal)) {}
  Flow execute(Interpreter& run) const override;
  const std::string text;
};

struct PrintStatement final : Statement {
  PrintStatement(uint32_t at, ExpressionPtr what) : Statement(at), value(std::move(what)) {}
  Flow execute(Interpreter& run) const override;
  const ExpressionPtr value;
};

struct IfStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};

struct ForStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  Target target;
  ExpressionPtr items;
  ExpressionPtr filter;  // may be nullptr
  Block body;
  Block otherwise;
  Name loop_name = 0;
};

struct SetStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  Target target;
  ExpressionPtr value;
};

// {% set x %}...{% endset %}
struct SetBlockStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  Target target;
  ExpressionPtr filter;  // of the text; may be nullptr
  Block body;
};

struct MacroStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  Name name = 0;
  MacroSignature signature;
  Block body;
};

// {% call(x) name(...) %}...{% endcall %}: the body is what the macro calls as caller().
struct CallStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  MacroSignature signature;
  std::unique_ptr<const CallExpression> call;
  Block body;
};

struct FilterStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  ExpressionPtr filter;
  Block body;
};

struct WithStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};

// {% generation %}: marks what a model wrote, for training; here only its body counts.
struct GroupStatement final : Statement {
  using Statement::Statement;
  Flow execute(Interpreter& run) const override;
  Block body;
};

struct JumpStatement final : Statement {
  JumpStatement(uint32_t at, Flow where) : Statement(at), flow(where) {}
  Flow execute(Interpreter&) const override { return flow; }
  const Flow flow;
};

}  // namespace strata::chat_template
