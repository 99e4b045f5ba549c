#pragma once
// The template as a tree. Every node knows its line and how to run itself.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/chat_template/value.h"

namespace strata::chat_template {

class Interpreter;

// Names of variables are numbered when parsed.
using Name = uint32_t;

struct Expression {
  explicit Expression(uint32_t at_line) : line(at_line) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;
  virtual Value evaluate(Interpreter& run) const = 0;
  const uint32_t line;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class Flow : unsigned char { kNext, kBreak, kContinue };

struct Statement {
  explicit Statement(uint32_t at_line) : line(at_line) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;
  virtual Flow execute(Interpreter& run) const = 0;
  const uint32_t line;
};
using Block = std::vector<std::unique_ptr<const Statement>>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *list
  ExpressionPtr more_named;       // **dict
};

// What `set` and `for` assign to.
struct Target {
  enum class Kind : unsigned char { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  Name name = 0;
  std::string attribute;      // of the namespace that `name` holds
  std::vector<Target> parts;  // of a tuple
  uint32_t line = 0;
};

struct MacroSignature {
  std::string name;
  std::vector<std::pair<Name, ExpressionPtr>> parameters;  // with a default or nullptr
  // Whether the body asks for what the parameters do not name.
  bool takes_caller = false;
  bool takes_more_positional = false;  // varargs
  bool takes_more_named = false;       // kwargs
};

struct Program {
  std::vector<std::string> names;
  Block body;
};

}  // namespace strata::chat_template
