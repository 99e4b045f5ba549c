// The global functions.

#include <array>
#include <ctime>

#include "gateway/chat_template/filter_support.h"

namespace strata::chat_template {
namespace {

using Function = Value (*)(Interpreter& run, Arguments arguments);

struct GlobalFunction final : Callable {
  GlobalFunction(std::string called, Function what) : Callable(std::move(called)), function(what) {}
  Value call(Interpreter& run, Arguments arguments) override { return function(run, std::move(arguments)); }
  const Function function;
};

Int integer_argument(const Parameters& parameters, std::size_t i) {
  const Value& value = parameters.value(i);
  if (!value.is_integer()) raise("'{}' object cannot be interpreted as an integer", type_name(value));
  return value.to_int();
}

Value range(Interpreter& run, Arguments arguments) {
  const Parameters parameters("range", std::move(arguments), {"start", "stop", "step"}, 1);
  const bool stop_only = !parameters.has(1);
  const Int start = stop_only ? 0 : integer_argument(parameters, 0);
  const Int stop = integer_argument(parameters, stop_only ? 0 : 1);
  const Int step = parameters.has(2) ? integer_argument(parameters, 2) : 1;
  if (step == 0) raise("range() arg 3 must not be zero");
  std::vector<Value> numbers;
  for (Int at = start; step > 0 ? at < stop : at > stop;) {
    run.budget().step();
    numbers.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return run.heap().list(std::move(numbers));
}

// dict() and namespace(): the entries of a mapping or of pairs, then the named arguments.
void fill(Interpreter& run, Dict& out, Arguments arguments) {
  if (arguments.positional.size() > 1)
    raise("expected at most 1 argument, got {}", arguments.positional.size());
  for (const Value& source : arguments.positional) {
    if (const auto* dict = source.as<Dict>()) {
      run.budget().step(dict->entries.size());
      for (const auto& [key, value] : dict->entries) out.set(key, value);
      continue;
    }
    for (const Value& pair : run.elements(source)) {
      const std::vector<Value> parts = run.elements(pair);
      if (parts.size() != 2) raise("expected pairs of a key and a value");
      out.set(parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : arguments.named) out.set(Value::literal(name), std::move(value));
}

Value dict(Interpreter& run, Arguments arguments) {
  auto* object = run.heap().make<Dict>();
  fill(run, *object, std::move(arguments));
  return {object};
}

Value make_namespace(Interpreter& run, Arguments arguments) {
  auto* object = run.heap().make<Namespace>();
  fill(run, object->attributes, std::move(arguments));
  return {object};
}

Value raise_exception(Interpreter& run, Arguments arguments) {
  const Parameters parameters("raise_exception", std::move(arguments), {"message"}, 1);
  raise("{}", to_text(run.budget(), parameters.value(0)).text());
}

Value strftime_now(Interpreter& run, Arguments arguments) {
  const Parameters parameters("strftime_now", std::move(arguments), {"format"}, 1);
  const MarkedText& format = parameters.text(0);
  const std::time_t now = run.now();
  std::tm local{};
  localtime_r(&now, &local);
  // One more character tells an empty result from one that does not fit.
  const std::string marked = fmt::format("{}.", format.text());
  std::array<char, 4096> buffer{};
  const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &local);
  if (bytes == 0) raise("strftime_now(): the result is too long");
  return Value::string(MarkedText(std::string_view(buffer.data(), bytes - 1), origin_of(format)));
}

constexpr std::array<std::pair<std::string_view, Function>, 5> kFunctions = {{
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
}};

}  // namespace

std::optional<Value> global_function(Interpreter& run, std::string_view name) {
  for (const auto& [known, function] : kFunctions) {
    if (known == name) return Value{run.heap().make<GlobalFunction>(std::string(name), function)};
  }
  return std::nullopt;
}

}  // namespace strata::chat_template
