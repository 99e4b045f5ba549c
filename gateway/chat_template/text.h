#pragma once
// Python's string operations on marked text. Positions count characters, and every byte of a result keeps the
// origin of the character that it came from.

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/chat_template/budget.h"
#include "services/tokenizer/marked_text.h"

namespace strata::chat_template {

using tokenizer::MarkedText;
using tokenizer::Origin;

// Builds a text within the budget: every append is paid for, and the size is bounded.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}
  void append(std::string_view text, Origin origin);
  void append(const MarkedText& text) { append(text, 0, text.size()); }
  void append(const MarkedText& text, std::size_t begin, std::size_t end);
  const MarkedText& text() const { return text_; }
  MarkedText take() { return std::exchange(text_, {}); }

 private:
  Budget& budget_;
  MarkedText text_;
};

// Byte positions of the characters of a text. A byte that continues none is counted with the character before
// it.
class CharacterIndex {
 public:
  explicit CharacterIndex(std::string_view text);
  std::size_t count() const { return ascii_ ? bytes_ : begins_.size() - 1; }
  std::size_t begin(std::size_t character) const { return ascii_ ? character : begins_[character]; }
  std::size_t character_at(std::size_t byte) const;  // of a byte that begins one, or of the end

 private:
  bool ascii_ = true;
  std::size_t bytes_ = 0;
  std::vector<std::size_t> begins_;  // and the end
};

std::size_t character_count(std::string_view text);
std::vector<MarkedText> characters(Budget& budget, const MarkedText& text);

// Python's white space; the one of str.isspace().
bool is_space(char32_t character);

enum class Side : unsigned char { kLeft, kRight, kBoth };
// Without characters: white space.
MarkedText strip(Budget& budget, const MarkedText& text, Side side,
                 std::optional<std::string_view> characters);

// max_parts: at most so many cuts; negative: no limit. separator must not be empty.
std::vector<MarkedText> split(Budget& budget, const MarkedText& text, std::string_view separator,
                              long max_cuts);
std::vector<MarkedText> split_from_right(Budget& budget, const MarkedText& text, std::string_view separator,
                                         long max_cuts);
std::vector<MarkedText> split_at_space(Budget& budget, const MarkedText& text, long max_cuts);
std::vector<MarkedText> split_at_space_from_right(Budget& budget, const MarkedText& text, long max_cuts);
std::vector<MarkedText> split_lines(Budget& budget, const MarkedText& text, bool keep_ends);

// max_count: negative: all.
MarkedText replace(Budget& budget, const MarkedText& text, const MarkedText& old_text,
                   const MarkedText& new_text, long max_count);
MarkedText repeat(Budget& budget, const MarkedText& text, std::size_t count);

// Byte positions, in linear time; npos: not there.
std::size_t find_in(Budget& budget, std::string_view text, std::string_view wanted, std::size_t from = 0);
std::size_t find_last_in(Budget& budget, std::string_view text, std::string_view wanted);
std::size_t count_in(Budget& budget, std::string_view text, std::string_view wanted);

enum class Case : unsigned char {
  kUpper,
  kLower,
  kSwapped,
  kCapitalized,    // the first character upper, the rest lower
  kTitle,          // Python: every letter after something that is no letter
  kTitleOfFilter,  // Jinja's filter: every character after white space, a dash or an opening bracket
};
MarkedText change_case(Budget& budget, const MarkedText& text, Case form);

// True when there is a character and all satisfy.
bool every_character(std::string_view text, const std::function<bool(char32_t)>& satisfies);
bool is_letter(char32_t character);
bool is_decimal_digit(char32_t character);
bool is_numeric(char32_t character);
// As str.isupper() / str.islower(): a cased letter is there, and none of the other case.
bool is_in_case(std::string_view text, Case form);

// &, <, >, ' and " as HTML entities.
MarkedText escape_html(Budget& budget, const MarkedText& text);
// In quotes, as Python's repr().
MarkedText quoted(Budget& budget, const MarkedText& text);

// fill must be one character. left/right: how many of them.
MarkedText pad(Budget& budget, const MarkedText& text, std::size_t left, std::size_t right,
               const MarkedText& fill);

}  // namespace strata::chat_template
