// What depends on the properties of characters: case, classes, escapes.

#include <utf8proc.h>

#include "gateway/chat_template/characters.h"
#include "gateway/chat_template/text.h"

namespace strata::chat_template {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

bool begins_word_of_filter(char32_t c) {
  return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
      return false;
    default:
      return true;
  }
}

// How repr() writes a character; empty: as it is.
std::string escape_of(char32_t c, char quote) {
  const auto value = static_cast<uint32_t>(c);
  if (value == static_cast<unsigned char>(quote) || value == '\\') return {'\\', static_cast<char>(value)};
  if (value == '\n') return "\\n";
  if (value == '\r') return "\\r";
  if (value == '\t') return "\\t";
  if (is_printable(c)) return {};
  if (value < 0x100) return fmt::format("\\x{:02x}", value);
  return value < 0x10000 ? fmt::format("\\u{:04x}", value) : fmt::format("\\U{:08x}", value);
}

}  // namespace

MarkedText change_case(Budget& budget, const MarkedText& text, Case form) {
  budget.walk(text.size());
  TextBuilder out(budget);
  std::string mapped;
  std::size_t done = 0;
  bool at_begin = true;  // of a word, or of the text
  for_each_character(text.text(), [&](const Character& c) {
    char32_t value = c.value;
    switch (form) {
      case Case::kUpper:
        value = upper(value);
        break;
      case Case::kLower:
        value = lower(value);
        break;
      case Case::kSwapped:
        value = upper(value) != value ? upper(value) : lower(value);
        break;
      case Case::kCapitalized:
      case Case::kTitle:
        value = at_begin ? title(value) : lower(value);
        break;
      case Case::kTitleOfFilter:
        value = at_begin ? upper(value) : lower(value);
        break;
    }
    if (form == Case::kTitle) at_begin = !is_cased(c.value);
    if (form == Case::kCapitalized) at_begin = false;
    if (form == Case::kTitleOfFilter) at_begin = begins_word_of_filter(c.value);
    if (value == c.value) return;
    out.append(text, done, c.begin);
    done = c.end;
    mapped.clear();
    tokenizer::utf8_append(mapped, value);
    out.append(mapped, text.origin_at(c.begin));
  });
  out.append(text, done, text.size());
  return out.take();
}

bool every_character(std::string_view text, const std::function<bool(char32_t)>& satisfies) {
  bool all = !text.empty();
  for_each_character(text, [&](const Character& c) { all = all && satisfies(c.value); });
  return all;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_in_case(std::string_view text, Case form) {
  const auto right = form == Case::kUpper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL;
  bool found = false;
  bool other = false;
  for_each_character(text, [&](const Character& c) {
    if (!is_cased(c.value)) return;
    (category(c.value) == right ? found : other) = true;
  });
  return found && !other;
}

MarkedText escape_html(Budget& budget, const MarkedText& text) {
  budget.walk(text.size());
  TextBuilder out(budget);
  std::size_t done = 0;
  const std::string_view whole = text.text();
  for (std::size_t at = whole.find_first_of("&<>'\""); at != std::string_view::npos;
       at = whole.find_first_of("&<>'\"", done)) {
    out.append(text, done, at);
    const char c = whole[at];
    const std::string_view entity = c == '&'   ? "&amp;"
                                    : c == '<' ? "&lt;"
                                    : c == '>' ? "&gt;"
                                    : c == '"' ? "&#34;"
                                               : "&#39;";
    out.append(entity, text.origin_at(at));
    done = at + 1;
  }
  out.append(text, done, whole.size());
  return out.take();
}

MarkedText quoted(Budget& budget, const MarkedText& text) {
  const std::string_view whole = text.text();
  const bool doubled =
      whole.find('\'') != std::string_view::npos && whole.find('"') == std::string_view::npos;
  const std::string_view quote = doubled ? "\"" : "'";
  budget.walk(whole.size());
  TextBuilder out(budget);
  out.append(quote, text.empty() ? Origin::kTemplate : text.runs().front().origin);
  std::size_t done = 0;
  for_each_character(whole, [&](const Character& c) {
    const std::string escaped = escape_of(c.value, quote[0]);
    if (escaped.empty()) return;
    out.append(text, done, c.begin);
    out.append(escaped, text.origin_at(c.begin));
    done = c.end;
  });
  out.append(text, done, whole.size());
  out.append(quote, text.empty() ? Origin::kTemplate : text.runs().back().origin);
  return out.take();
}

}  // namespace strata::chat_template
