// str() and repr().

#include "gateway/chat_template/interpreter.h"
#include "gateway/chat_template/number_text.h"

namespace strata::chat_template {
namespace {

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget), out_(budget) {}

  void print(const Value& value, bool quoted_strings) {
    const DepthGuard guard(budget_);
    const Origin origin = value.origin;
    if (value.is_string()) {
      print_string(value, quoted_strings);
    } else if (value.is_undefined()) {
      out_.append(quoted_strings ? "Undefined" : "", origin);
    } else if (value.is_none()) {
      out_.append("None", origin);
    } else if (const bool* flag = std::get_if<bool>(&value.data)) {
      out_.append(*flag ? "True" : "False", origin);
    } else if (value.is_integer()) {
      out_.append(int_text(value.to_int()), origin);
    } else if (value.is_number()) {
      out_.append(float_text(value.to_double()), origin);
    } else if (const auto* sequence = value.as<Sequence>()) {
      print_sequence(*sequence, origin);
    } else if (const auto* dict = value.as<Dict>()) {
      print_dict(*dict, origin);
    } else if (const auto* space = value.as<Namespace>()) {
      out_.append("<Namespace ", origin);
      print_dict(space->attributes, origin);
      out_.append(">", origin);
    } else if (const auto* callable = value.as<Callable>()) {
      out_.append(fmt::format("<function {}>", callable->name), origin);
    } else {
      out_.append("<LoopContext>", origin);
    }
  }

  MarkedText take() { return out_.take(); }

 private:
  void print_string(const Value& value, bool in_quotes) {
    if (!in_quotes) return out_.append(value.text());
    if (value.markup) out_.append("Markup(", Origin::kTemplate);
    out_.append(quoted(budget_, value.text()));
    if (value.markup) out_.append(")", Origin::kTemplate);
  }

  void print_sequence(const Sequence& sequence, Origin origin) {
    const bool tuple = sequence.kind == Sequence::Kind::kTuple;
    out_.append(tuple ? "(" : "[", origin);
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.append(", ", origin);
      print(sequence.items[i], true);
    }
    if (tuple && sequence.items.size() == 1) out_.append(",", origin);
    out_.append(tuple ? ")" : "]", origin);
  }

  void print_dict(const Dict& dict, Origin origin) {
    out_.append("{", origin);
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!std::exchange(first, false)) out_.append(", ", origin);
      print(key, true);
      out_.append(": ", origin);
      print(value, true);
    }
    out_.append("}", origin);
  }

  Budget& budget_;
  TextBuilder out_;
};

}  // namespace

MarkedText to_text(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.print(value, false);
  return printer.take();
}

MarkedText to_quoted_text(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.print(value, true);
  return printer.take();
}

Text to_shared_text(Budget& budget, const Value& value) {
  if (value.is_string()) return std::get<Text>(value.data);
  return std::make_shared<const MarkedText>(to_text(budget, value));
}

}  // namespace strata::chat_template
