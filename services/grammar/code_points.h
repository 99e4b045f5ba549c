#pragma once
// Sets of Unicode characters, and the byte sequences that spell a range of them in UTF-8.

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

namespace strata::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;
inline constexpr char32_t kSurrogatesFirst = 0xD800, kSurrogatesLast = 0xDFFF;

struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;  // included
  auto operator<=>(const CodeRange&) const = default;
};

// Sorted, disjoint ranges that do not touch. Surrogates are no characters: add() leaves them out.
class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(std::initializer_list<CodeRange> ranges);
  static CodePoints all() { return CodePoints({{0, kLastCodePoint}}); }

  void add(char32_t first, char32_t last);
  void add(char32_t value) { add(value, value); }
  void add(const CodePoints& other);

  CodePoints complement() const;
  CodePoints intersection(const CodePoints& other) const;
  CodePoints minus(const CodePoints& other) const { return intersection(other.complement()); }

  bool contains(char32_t value) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const CodeRange> ranges() const { return ranges_; }
  auto operator<=>(const CodePoints&) const = default;

 private:
  void add_scalars(char32_t first, char32_t last);

  std::vector<CodeRange> ranges_;
};

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;  // included
};

// Calls visit(sequence) for byte ranges b1 .. bn (n = 1..4) such that the characters of the range are exactly
// the texts with one byte out of each. The range must hold no surrogates.
void for_each_utf8_sequence(CodeRange range, const std::function<void(std::span<const ByteRange>)>& visit);

}  // namespace strata::grammar
