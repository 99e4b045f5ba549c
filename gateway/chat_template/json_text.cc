#include "gateway/chat_template/json_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gateway/chat_template/number_text.h"
#include "gateway/chat_template/text.h"
#include "services/tokenizer/utf8.h"

namespace strata::chat_template {
namespace {

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

// The escape of a character, or empty: as it is.
std::string json_escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  const auto value = static_cast<uint32_t>(c);
  if (value < 0x20 || (ensure_ascii && value >= 0x7F && value < 0x10000))
    return fmt::format("\\u{:04x}", value);
  if (ensure_ascii && value >= 0x10000) {
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (value >> 10), 0xDC00 + (value & 0x3FF));
  }
  return {};
}

class Writer {
 public:
  Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style), out_(budget) {}

  void write(const Value& value) {
    const DepthGuard guard(budget_);
    const Origin origin = value.origin;
    if (value.is_string()) {
      write_string(value.text());
    } else if (value.is_none()) {
      out_.append("null", origin);
    } else if (const bool* flag = std::get_if<bool>(&value.data)) {
      out_.append(*flag ? "true" : "false", origin);
    } else if (value.is_integer()) {
      out_.append(int_text(value.to_int()), origin);
    } else if (value.is_number()) {
      out_.append(json_number(value.to_double()), origin);
    } else if (const auto* sequence = value.as<Sequence>();
               sequence != nullptr && sequence->kind != Sequence::Kind::kGenerator) {
      write_items("[", "]", sequence->items, origin, [&](const Value& item) { write(item); });
    } else if (const auto* dict = value.as<Dict>()) {
      write_dict(*dict, origin);
    } else {
      raise("Object of type {} is not JSON serializable", type_name(value));
    }
  }

  MarkedText take() { return out_.take(); }

 private:
  void write_string(const MarkedText& text) {
    const std::string_view whole = text.text();
    budget_.walk(whole.size());
    out_.append("\"", text.empty() ? Origin::kTemplate : text.runs().front().origin);
    std::size_t done = 0;
    for (std::size_t at = 0; at < whole.size();) {
      const auto step = tokenizer::utf8_step(whole.substr(at));
      const bool whole_character = step.kind == tokenizer::Utf8Step::Kind::kCharacter;
      const std::string escape =
          whole_character ? json_escape(step.value, style_.ensure_ascii) : std::string();
      if (!escape.empty()) {
        out_.append(text, done, at);
        out_.append(escape, text.origin_at(at));
        done = at + step.bytes;
      }
      at += step.bytes;
    }
    out_.append(text, done, whole.size());
    out_.append("\"", text.empty() ? Origin::kTemplate : text.runs().back().origin);
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is_none())
      raise("keys must be str, int, float, bool or None, not {}", type_name(key));
    out_.append("\"", key.origin);
    write(key);
    out_.append("\"", key.origin);
  }

  void write_dict(const Dict& dict, Origin origin) {
    const auto write_entry = [&](const std::pair<Value, Value>& entry) {
      write_key(entry.first);
      out_.append(style_.key_separator);
      write(entry.second);
    };
    if (!style_.sort_keys) return write_items("{", "}", dict.entries, origin, write_entry);
    std::vector<std::size_t> order(dict.entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return less(budget_, dict.entries[a].first, dict.entries[b].first);
    });
    write_items("{", "}", order, origin, [&](std::size_t i) { write_entry(dict.entries[i]); });
  }

  template <class Items, class WriteItem>
  void write_items(std::string_view open, std::string_view close, const Items& items, Origin origin,
                   WriteItem write_item) {
    out_.append(open, origin);
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) out_.append(style_.item_separator);
      break_line();
      write_item(item);
    }
    --level_;
    if (!items.empty()) break_line();
    out_.append(close, origin);
  }

  void break_line() {
    if (!style_.indent) return;
    out_.append("\n", Origin::kTemplate);
    for (uint32_t i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  Budget& budget_;
  const JsonStyle& style_;
  TextBuilder out_;
  uint32_t level_ = 0;
};

}  // namespace

MarkedText to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  Writer writer(budget, style);
  writer.write(value);
  return writer.take();
}

}  // namespace strata::chat_template
