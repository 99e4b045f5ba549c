#pragma once
// Runs a program: scopes, calls, output. One object per rendering.

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/chat_template/arguments.h"
#include "gateway/chat_template/ast.h"
#include "gateway/chat_template/budget.h"
#include "gateway/chat_template/text.h"
#include "gateway/chat_template/value.h"

namespace strata::chat_template {

struct Callable : Object {
  explicit Callable(std::string called) : name(std::move(called)) {}
  virtual Value call(Interpreter& run, Arguments arguments) = 0;
  const std::string name;
};

// Variables of one block. Inner scopes see outer ones; an assignment goes to the innermost.
struct Scope : Object {
  explicit Scope(Scope* outer) : parent(outer) {}
  Scope* const parent;
  std::vector<std::pair<Name, Value>> variables;
  bool captured = false;  // a macro that was defined inside may be called later

  void set(Name name, Value value);
  const Value* find(Name name) const;  // here or further out
};

class Interpreter {
 public:
  Interpreter(const Program& program, Budget& budget, std::time_t now);

  Budget& budget() { return budget_; }
  Heap& heap() { return heap_; }
  std::time_t now() const { return now_; }
  // Of the node that is running, for messages.
  uint32_t line() const { return line_; }

  // Variables that the caller of the template gives. Names that the template never mentions are dropped.
  void define(std::string_view name, Value value) { define_in(globals_, name, std::move(value)); }
  void define_in(Scope& scope, std::string_view name, Value value);
  MarkedText run();

  Value evaluate(const Expression& expression);
  Flow execute(const Block& block);
  Arguments evaluate(const CallArguments& arguments);

  Value variable(Name name);
  const std::string& spelling(Name name) const { return program_.names[name]; }
  void assign(const Target& target, Value value);

  Value call(const Value& callee, Arguments arguments);
  // a.b and a[b], with Jinja's fallbacks of one to the other.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  // Every element once; empties a generator. Raises for what cannot be walked.
  std::vector<Value> elements(const Value& iterable);
  std::size_t length(const Value& value);
  bool contains(const Value& container, const Value& wanted);

  void print(const Value& value);
  void print_literal(std::string_view text) { output_->append(text, Origin::kTemplate); }

  // Runs a block in a scope of its own; what it prints is the result.
  MarkedText capture(const Block& block, Scope* outer);
  Scope* scope() { return scope_; }
  // While one of these lives, assignments go to its scope.
  class ScopeGuard;

 private:
  const Program& program_;
  Budget& budget_;
  Heap heap_;
  const std::time_t now_;
  Scope globals_{nullptr};
  Scope* scope_;
  TextBuilder* output_ = nullptr;
  uint32_t line_ = 0;
};

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& run, Scope* scope) : run_(run), outer_(std::exchange(run.scope_, scope)) {}
  ~ScopeGuard() { run_.scope_ = outer_; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& run_;
  Scope* const outer_;
};

// str() and repr().
MarkedText to_text(Budget& budget, const Value& value);
MarkedText to_quoted_text(Budget& budget, const Value& value);
// A string as it is, without a copy; everything else as str().
Text to_shared_text(Budget& budget, const Value& value);

// Operators (operators.cc).
enum class Operator : unsigned char;
Value apply_operator(Interpreter& run, Operator op, const Value& left, const Value& right);
Value negated(const Value& value);
// value[begin:end:step] with Python's rules; none where a bound is left out.
Value slice(Interpreter& run, const Value& value, const Value& begin, const Value& end, const Value& step);

// Filters, tests, methods and global functions by name. Raises for unknown names.
Value apply_filter(Interpreter& run, const std::string& name, const Value& input, Arguments arguments);
bool apply_test(Interpreter& run, const std::string& name, const Value& input, Arguments arguments);

// A method of the type of `object`, or nullptr.
using Method = Value (*)(Interpreter& run, const Value& object, Arguments arguments);
Method find_method(const Value& object, std::string_view name);

// range, dict, namespace, raise_exception, strftime_now; nullopt: no such name.
std::optional<Value> global_function(Interpreter& run, std::string_view name);

}  // namespace strata::chat_template
